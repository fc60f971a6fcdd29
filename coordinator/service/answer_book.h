// An AnswerBook keeps what mutations were answered, in memory: a retry, which has the same
// request_id, gets the same answer and changes nothing. The fleet keeps its answers in its journal
// instead (fleet_book.h), under the same rules. Thread-safe.
#pragma once
#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// InvalidArgument unless a request_id has 1 to 256 bytes.
absl::Status CheckRequestId(const std::string& id);
// The same text for the same call with the same fields.
std::string AskedText(const char* call, const google::protobuf::MessageLite& request);
// InvalidArgument: the id was used for another wish before.
absl::Status UsedBefore(const std::string& request_id);

class AnswerBook final {
 public:
  // Takes the answer, a message, serialised.
  using Tell = std::function<void(const absl::StatusOr<std::string>& answer)>;

  // `most`: so many answers are kept; those before are forgotten.
  explicit AnswerBook(size_t most) : most_(most) {}
  AnswerBook(const AnswerBook&) = delete;
  AnswerBook& operator=(const AnswerBook&) = delete;

  // Has `make` called with where its answer goes, unless the wish was made before: then its answer,
  // or the one that it is still to get, is told. A failure is not kept. `asked`: AskedText. The
  // book outlives whatever `make` begins.
  void Take(const std::string& request_id, const std::string& asked, const Tell& tell,
            const std::function<void(const Tell&)>& make);

 private:
  struct Wish {
    std::string asked;
    bool is_answered = false;
    std::string answer = {};
    std::vector<Tell> waiting = {};
  };
  void Answer(const std::string& request_id, const absl::StatusOr<std::string>& answer);

  const size_t most_;
  std::mutex mutex_;                    // guards the two below
  std::map<std::string, Wish> wishes_;  // by request_id
  std::deque<std::string> answered_;    // oldest first
};

}  // namespace weft
