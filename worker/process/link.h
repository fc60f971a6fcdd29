// Link: this worker's stream to the coordinator, by way of its host's agent, for its whole life, on
// its own thread, so that compute never starves a heartbeat. The only file of the worker that sees
// gRPC (link.cc).
//
// A stream that breaks is dialled again and registered again, so a coordinator that comes back
// within the lease adopts its workers; reports that it had not acknowledged are repeated.
//
// Lease: the agent says until when this worker may go on. Then, or when the coordinator refuses
// this worker or orders an abort, `on_lost` is called, once, from a thread of the link; the worker
// then ends itself. What has ended is not prolonged. Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/checkpoint.h"
#include "process/clock.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace weft {

struct LinkOptions {
  std::string agent;  // gRPC target: "unix:/path/to/ranks.sock"
  int rank = 0;
  int world_size = 1;
  int64_t generation = 1;
  int64_t patience_ms = 6400;  // until the agent has told of a lease
  // The clock of the lease, CLOCK_BOOTTIME; another one in tests.
  std::function<int64_t()> now_ms = BootTimeMs;
  std::function<void(const absl::Status& why)> on_lost;
};

class Link final {
 public:
  // Dials in and registers. Unavailable if nobody answers within patience_ms, Aborted if the
  // generation is an old one, FailedPrecondition if the coordinator is of another version.
  static absl::StatusOr<std::unique_ptr<Link>> Attach(LinkOptions options);
  ~Link();  // closes the stream, joins the threads

  // Blocks until the Train order, as long as the lease goes on: how long the other ranks may take
  // to register is the coordinator's to judge, by the job's comm.init_timeout_seconds. Aborted if
  // it gives them up, Unavailable if the lease ends.
  absl::StatusOr<Assignment> WaitForTrain();

  // A few bytes for other ranks (none named: all), which they wait for by topic and sender; for
  // what ranks agree on before they can reach each other (proto/agent.proto, Note). Until
  // ReportReady().
  void SendNote(absl::string_view topic, absl::Span<const int> to, absl::string_view value);
  // Waits at most timeout_ms (DeadlineExceeded).
  absl::StatusOr<std::string> WaitForNote(const std::string& topic, int from, int64_t timeout_ms);

  void ReportReady(int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes);
  // Waits until all ranks are ready, at most timeout_ms (DeadlineExceeded).
  absl::Status AwaitBegin(int64_t timeout_ms);
  void ReportStep(const StepReport& report);
  // See RunHooks::exchange_shards. Waits at most timeout_ms for all ranks (DeadlineExceeded).
  absl::StatusOr<std::vector<ShardRecord>> ExchangeShards(const SaveId& save,
                                                          const absl::StatusOr<ShardRecord>& shard,
                                                          int64_t timeout_ms);
  // `folder`: its name inside the checkpoint folder, "step-200".
  void ReportCommitted(int64_t step, const std::string& folder, int64_t bytes);
  void ReportNotCommitted(const SaveId& save, const absl::Status& why);
  // See RunHooks::save_over. Waits at most timeout_ms (DeadlineExceeded).
  absl::StatusOr<SaveEnd> AwaitSaveOver(const SaveId& save, int64_t timeout_ms);
  // These two send and wait until the coordinator has journaled it, at most timeout_ms. `loading`:
  // the checkpoint could not be read.
  void ReportFinished(const RunResult& result, int64_t timeout_ms);
  void ReportFault(const absl::Status& fault, bool loading, int64_t timeout_ms);

  bool StopRequested() const;  // a Stop order has come
  // A checkpoint was asked for since the last call that returned true.
  bool TakeSaveWish();
  // The coordinator has said that it ends for a while, and no other one has been heard since.
  bool IsCoordinatorAway() const;

 private:
  class Impl;
  explicit Link(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
