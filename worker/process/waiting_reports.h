// WaitingReports holds what a rank has said and nobody has acknowledged yet, in order: what is not
// on the open stream is still to be sent, and a new stream begins from the first again. Facts are
// kept however long it takes, and are few, since a rank waits for the answer to most of them. Steps
// come for as long as it trains: beyond a bound the oldest is let go, for only the newest matter to
// whoever looks, and metrics.jsonl has them all. Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "proto/agent.pb.h"

namespace weft {

class WaitingReports {
 public:
  // REQUIRES: sequences grow.
  void Add(proto::WorkerReport report);
  // All reports up to this sequence are safe.
  void Acknowledge(int64_t sequence);
  // Returns what is to be sent on the open stream; from then on it counts as sent.
  std::vector<proto::WorkerReport> TakeUnsent();
  bool has_unsent() const { return sent_ < reports_.size(); }
  // There is a new stream, on which nothing is sent yet.
  void BeginStream() { sent_ = 0; }

  size_t size() const { return reports_.size(); }

  static constexpr size_t kMostSteps = 1000;

 private:
  void DropOldestStep();

  std::deque<proto::WorkerReport> reports_;
  size_t sent_ = 0;   // of them, on the open stream
  size_t steps_ = 0;  // of them, steps that may be let go
};

}  // namespace weft
