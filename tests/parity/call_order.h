// The calls that ranks make to their Comm, and a replay of them: whether every rank of a group
// makes the same calls of the same sizes in the same order, and whether all of them get to their
// ends. Each rank runs alone, on a Comm that records and does nothing else: a wrong order shows as
// a text, where processes would wait for each other until their deadline.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "worker/backend/comm.h"

namespace weft {

struct RecordedGroup {
  int round = 0;           // of calls to NewGroup: the same ranks may make several groups
  std::vector<int> ranks;  // ascending
  friend bool operator==(const RecordedGroup&, const RecordedGroup&) = default;
};

struct RecordedCall {
  enum class Kind {
    kCollective,
    kHostReduce,
    kBarrier,
    kExchange,
    kStart,
    kWait,
    kStartBeside,
    kWaitBeside
  };

  Kind kind = Kind::kCollective;
  // But for kExchange and the waits.
  RecordedGroup group = {};
  // All ranks of the group have to agree on this: "all-gather of 96 x f32".
  std::string what = {};
  std::vector<Transfer> transfers = {};  // kExchange; only sizes and types are looked at
  int64_t ticket = 0;                    // kStart, kWait
};
using RecordedCalls = std::vector<RecordedCall>;

class RecordingComm final : public Comm {
 public:
  RecordingComm(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) override;
  BackendStatus AllReduce(int group, ReduceOp op, View data) override;
  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override;
  BackendStatus AllGather(int group, View data) override;
  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override;
  BackendStatus Exchange(const Transfer* transfers, int count) override;
  BackendStatus Barrier(int group) override;
  BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) override;
  BackendStatus Wait(int64_t ticket) override;
  BackendStatus StartBeside(const CollectiveCall& collective) override;
  BackendStatus WaitBeside() override;
  void Interrupt(const char*) override {}

  const RecordedCalls& calls() const { return calls_; }

 private:
  BackendStatus Record(RecordedCall::Kind kind, const CollectiveCall& call, int64_t ticket);
  const RecordedGroup& Of(int group) const { return groups_[static_cast<size_t>(group)]; }

  const int rank_;
  const int world_size_;
  int rounds_ = 0;
  std::vector<RecordedGroup> groups_;
  RecordedCalls calls_;
  int64_t started_ = 0;
};

// Carries all calls out by the contract of worker/backend/comm.h: what is started runs beside the
// rest, in its order. Returns what is wrong, nothing if all is well: "rank 0 and rank 1 disagree:
// ...", "rank 2 waits for ever: ...", "rank 0 has not waited for ... before ...", or
// "... at its end".
std::vector<std::string> Replay(const std::vector<RecordedCalls>& by_rank);

}  // namespace weft
