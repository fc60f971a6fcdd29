// The launcher's side of weft.v1 (proto/weft/v1/control.proto): its calls as plain functions. Every
// call has a deadline, and one that finds weftd busy or closing is made again within a bound; a
// mutation that is made again has the same request_id, so that it counts once. Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/service/service_address.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

class ControlClient {
 public:
  struct Patience {
    int64_t call_ms = 10000;  // of one attempt
    int attempts = 6;         // of a call
    int watch_attempts = 30;  // in a row that bring nothing: a weftd may be started again meanwhile
    bool awaits_restart = true;  // false: a watch ends as soon as its weftd is gone
    int64_t first_wait_ms = 100;
    int64_t last_wait_ms = 2000;
  };

  // Unavailable if nobody listens there; PermissionDenied if the listener is not to be believed
  // (Listens::kService; of a run, kThisUser), or denies the caller.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Open(const ServiceAddress& address,
                                                             const Patience& patience);
  static absl::StatusOr<std::unique_ptr<ControlClient>> Open(const ServiceAddress& address) {
    return Open(address, Patience{});
  }
  ~ControlClient();

  // `call_ms`: instead of the patience's.
  absl::StatusOr<v1::VersionReply> Version(int64_t call_ms = 0);
  absl::StatusOr<v1::ListReply> List(const v1::ListRequest& request);
  absl::StatusOr<v1::Job> Get(const std::string& job_id, int64_t call_ms = 0);
  absl::StatusOr<v1::HostsReply> Hosts(int64_t call_ms = 0);

  // Mutations: a request_id that is empty becomes a fresh one.
  absl::StatusOr<v1::SubmitReply> Submit(v1::SubmitRequest request);
  absl::StatusOr<v1::Job> Stop(v1::StopRequest request);
  absl::StatusOr<v1::Job> Checkpoint(v1::CheckpointRequest request);
  absl::StatusOr<v1::Job> Pause(v1::PauseRequest request);
  absl::StatusOr<v1::Job> Resume(v1::ResumeRequest request);
  absl::StatusOr<v1::Job> Resize(v1::ResizeRequest request);
  absl::StatusOr<v1::Host> DrainHost(v1::DrainHostRequest request);
  absl::StatusOr<v1::Host> UndrainHost(v1::UndrainHostRequest request);
  absl::StatusOr<v1::SetLogLevelReply> SetLogLevel(v1::SetLogLevelRequest request);

  // Calls `on_reply` for what happens to the job (empty: to all) after `*revision`, and moves
  // *revision along. A stream that breaks is resumed from there. Returns OK when the job is over or
  // `on_reply` has returned false; Cancelled after Leave; OutOfRange as weftd says it; Unavailable
  // if weftd is gone.
  absl::Status Watch(const std::string& job_id, int64_t* revision,
                     const std::function<bool(const v1::WatchReply&)>& on_reply);
  // Calls `on_reply` for each piece. A stream that breaks is not resumed: pieces have no place to
  // resume from. Cancelled after Leave.
  absl::Status Logs(const v1::LogsRequest& request,
                    const std::function<void(const v1::LogsReply&)>& on_reply);
  // Ends the streams that are read and the waits for another attempt; for ever. From any thread.
  void Leave();

 private:
  class Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// 32 hexadecimal digits that nobody else comes to have.
std::string FreshRequestId();

}  // namespace weft
