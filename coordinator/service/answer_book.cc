#include "coordinator/service/answer_book.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr size_t kMaxIdBytes = 256;

}  // namespace

absl::Status CheckRequestId(const std::string& id) {
  if (!id.empty() && id.size() <= kMaxIdBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request_id: has ", id.size(),
                   " bytes; choose a fresh one for each wish, of 1 to ", kMaxIdBytes, " bytes"));
}

// The same bytes for the same fields, in whatever order a map was filled.
std::string AskedText(const char* call, const google::protobuf::MessageLite& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return absl::StrCat(call, " ", absl::Hex(XXH3_64bits(bytes.data(), bytes.size())));
}

absl::Status UsedBefore(const std::string& request_id) {
  return absl::InvalidArgumentError(
      absl::StrCat("request_id: \"", request_id,
                   "\" was used for another wish before; choose a fresh one for each"));
}

void AnswerBook::Take(const std::string& request_id, const std::string& asked, const Tell& tell,
                      const std::function<void(const Tell&)>& make) {
  const absl::Status has_id = CheckRequestId(request_id);
  if (!has_id.ok()) return tell(has_id);
  std::optional<absl::StatusOr<std::string>> known;  // none: the wish is new
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [place, is_new] = wishes_.try_emplace(request_id, Wish{.asked = asked});
    Wish& wish = place->second;
    if (wish.asked != asked) {
      known = UsedBefore(request_id);
    } else if (wish.is_answered) {
      known = wish.answer;
    } else {
      wish.waiting.push_back(tell);
      if (!is_new) return;
    }
  }
  if (known) return tell(*known);
  make([this, request_id](const absl::StatusOr<std::string>& answer) {
    Answer(request_id, answer);
  });
}

void AnswerBook::Answer(const std::string& request_id, const absl::StatusOr<std::string>& answer) {
  std::vector<Tell> waiting;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto wish = wishes_.find(request_id);
    if (wish == wishes_.end()) return;
    waiting = std::exchange(wish->second.waiting, {});
    if (answer.ok()) {
      wish->second.is_answered = true;
      wish->second.answer = *answer;
      answered_.push_back(request_id);
    } else {
      wishes_.erase(wish);
    }
    while (answered_.size() > most_) {
      wishes_.erase(answered_.front());
      answered_.pop_front();
    }
  }
  for (const Tell& tell : waiting) tell(answer);
}

}  // namespace weft
