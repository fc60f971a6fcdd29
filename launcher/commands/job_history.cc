#include "launcher/commands/job_history.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "plan/errors.h"

namespace weft {
namespace {

// "revision 3 is no longer kept; use 1200 or later": the last number is one that will do.
std::optional<int64_t> NumberAtEnd(absl::string_view message) {
  while (!message.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(message.back()))) {
    message.remove_suffix(1);
  }
  size_t begin = message.size();
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(message[begin - 1]))) --begin;
  int64_t number = 0;
  if (!absl::SimpleAtoi(message.substr(begin), &number)) return std::nullopt;
  return number;
}

}  // namespace

absl::Status ReadHistory(ControlClient& client, const std::string& job_id,
                         const std::function<void(const v1::Event&)>& on_event) {
  ASSIGN_OR_RETURN(const v1::Job job, client.Get(job_id));
  const auto on_reply = [&](const v1::WatchReply& reply) {
    for (const v1::Event& event : reply.events()) {
      if (!event.has_step()) on_event(event);
    }
    const int64_t last = reply.events().empty() ? 0 : reply.events().rbegin()->revision();
    return std::max(last, reply.revision()) < job.revision();
  };
  int64_t revision = 0;
  const absl::Status status = client.Watch(job_id, &revision, on_reply);
  const std::optional<int64_t> oldest = NumberAtEnd(status.message());
  if (!absl::IsOutOfRange(status) || !oldest) return status;
  std::cerr << "weft: the oldest events are no longer kept\n";
  revision = *oldest;
  return client.Watch(job_id, &revision, on_reply);
}

}  // namespace weft
