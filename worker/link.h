// Link: this worker's stream to the coordinator, for its whole life, on its own thread, so that
// compute never starves a heartbeat. The only file of the worker that sees gRPC (link.cc).
//
// Lease: if no acknowledgement has come for 0.8 of the lease, or the coordinator orders an abort,
// `on_lost` is called once, from the link's thread; the worker then ends itself.
// Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "worker/trainer.h"

namespace weft {

struct LinkOptions {
  std::string coordinator;  // gRPC target: "unix:/path/to/weftd.sock"
  int rank = 0;
  int world_size = 1;
  int64_t generation = 1;
  int64_t lease_ms = 8000;
  std::function<void(const absl::Status& why)> on_lost;
};

class Link {
 public:
  // Dials in and registers. Unavailable, or Aborted if the generation is an old one.
  static absl::StatusOr<std::unique_ptr<Link>> Attach(LinkOptions options);
  virtual ~Link() = default;  // closes the stream, joins the thread

  // Blocks until the Train order, at most timeout_ms (DeadlineExceeded).
  virtual absl::StatusOr<Assignment> WaitForTrain(int64_t timeout_ms) = 0;

  virtual void ReportReady(int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes) = 0;
  virtual void ReportStep(const StepReport& report) = 0;
  // See RunHooks::exchange_shards. Waits at most timeout_ms for the grant.
  virtual absl::StatusOr<std::vector<ShardRecord>> ExchangeShards(int64_t step,
                                                                  const ShardRecord& shard,
                                                                  int64_t timeout_ms) = 0;
  virtual void ReportCommitted(int64_t step, const std::string& folder) = 0;
  // Sends and waits until the coordinator has it, at most timeout_ms.
  virtual void ReportFinished(const RunResult& result, int64_t timeout_ms) = 0;
  virtual void ReportFault(const absl::Status& fault, int64_t timeout_ms) = 0;

  virtual bool StopRequested() const = 0;  // a Stop order has come
};

}  // namespace weft
