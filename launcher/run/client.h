// The launcher's side of the wire: Control and Supervision as plain calls. The only file of the
// launcher that sees gRPC (client.cc). Every call has a deadline. Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/run/first_cause.h"
#include "proto/agent.pb.h"
#include "proto/control.pb.h"

namespace weft {

// Says whether somebody listens on a unix socket. It is asked before gRPC dials: a channel whose
// first attempt fails waits seconds before the next.
bool Listens(const std::string& socket);

class Client {
 public:
  // `socket`: path of weftd's unix socket. Does not dial yet. PermissionDenied if it is another
  // user's.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const std::string& socket);
  ~Client();

  // Waits `timeout_ms` for a daemon that is still starting, dialling as often as it takes.
  absl::StatusOr<proto::VersionReply> GetVersion(int64_t timeout_ms);
  absl::StatusOr<std::string> Submit(const proto::SubmitJobRequest& request);  // job id
  absl::StatusOr<proto::JobStatus> GetJob(const std::string& job_id);
  absl::Status Stop(const std::string& job_id, bool now);

  // Blocks at most `wait_ms` on the other side.
  absl::StatusOr<proto::Attempt> NextAttempt(const std::string& job_id, int64_t wait_ms);
  absl::Status AttemptEnded(const std::string& job_id, int64_t generation, bool clean,
                            const FirstCause& cause, const std::string& last_lines);

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
