// LogsStream: one call of Control.Logs. It has a thread of its own, which reads files and waits for
// each message to be taken: a slow reader holds up nobody but itself.
#pragma once
#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/driver.h"
#include "coordinator/service/call_limits.h"
#include "process/run_logs.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

class LogsStream final : public grpc::ServerWriteReactor<v1::LogsReply> {
 public:
  // Asks how the job stands; answered from any thread.
  using AskForJob = std::function<void(const v1::GetRequest&, const Reply<v1::Job>&)>;
  // `held`: what the caller may have so many of.
  LogsStream(AskForJob ask, CallLimits::Held held, v1::LogsRequest request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Run();
  absl::Status Tell();
  // All that there is of these files now. False: the caller has gone.
  bool TellFiles(int64_t generation, std::vector<LogFile>& files, bool to_end);
  bool Write(v1::LogsReply reply);
  absl::StatusOr<v1::Job> Job();
  // False: the caller has gone.
  bool Rest();

  const AskForJob ask_;
  const CallLimits::Held held_;
  const v1::LogsRequest request_;
  std::mutex mutex_;  // guards the two below
  bool gone_ = false;
  bool written_ = true;
  std::condition_variable changed_;
  v1::LogsReply reply_;
  std::thread thread_;
};

}  // namespace weft
