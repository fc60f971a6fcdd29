// The launcher's side of the wire for people: Control as plain calls. Every call has a deadline.
// Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace weft {

inline constexpr int64_t kCallMs = 10000;

class Client {
 public:
  // `socket`: path of weftd's unix socket. Unavailable if nobody listens there, PermissionDenied if
  // another user does.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const std::string& socket);
  ~Client();

  absl::StatusOr<proto::VersionReply> GetVersion(int64_t timeout_ms);
  absl::StatusOr<std::string> Submit(const proto::SubmitJobRequest& request);  // job id
  absl::StatusOr<proto::JobStatus> GetJob(const std::string& job_id, int64_t timeout_ms = kCallMs);
  absl::Status Stop(const std::string& job_id, bool now);

  // Calls `on_event` for each event after `*revision`, and moves *revision along. Returns OK when
  // the job is over, Cancelled after StopWatching, Unavailable if the coordinator is gone.
  absl::Status Watch(const std::string& job_id, int64_t* revision,
                     const std::function<void(const proto::JobEvent&)>& on_event);
  void StopWatching();  // from any thread

 private:
  struct Stubs;
  explicit Client(std::unique_ptr<Stubs> stubs);
  std::unique_ptr<Stubs> stubs_;
};

}  // namespace weft
