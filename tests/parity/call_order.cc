#include "tests/parity/call_order.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "worker/state/world_sum.h"

namespace weft {
namespace {

using Kind = RecordedCall::Kind;

std::string SizeText(const View& data) {
  return absl::StrCat(data.elements(), " elements of type ", static_cast<int>(data.dtype));
}

std::string TextOf(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return absl::StrCat("all-reduce ", static_cast<int>(call.op), " of ", SizeText(call.data));
    case CollectiveKind::kReduceScatter:
      return absl::StrCat("reduce-scatter ", static_cast<int>(call.op), " of ",
                          SizeText(call.data));
    case CollectiveKind::kAllGather:
      return absl::StrCat("all-gather of ", SizeText(call.data));
  }
  CHECK(false);
  return "";
}

std::string TextOf(const RecordedCall& call) {
  switch (call.kind) {
    case Kind::kExchange:
      return absl::StrJoin(call.transfers, ", ", [](std::string* out, const Transfer& transfer) {
        absl::StrAppend(out, transfer.send ? "send " : "receive ", SizeText(transfer.data),
                        transfer.send ? " to rank " : " from rank ", transfer.peer);
      });
    case Kind::kWait:
      return absl::StrCat("wait for what was started as number ", call.ticket);
    case Kind::kWaitBeside:
      return "wait for what was started beside";
    case Kind::kStart:
    case Kind::kStartBeside:
      return absl::StrCat("started ", call.what, " among ranks ",
                          absl::StrJoin(call.group.ranks, ","));
    case Kind::kCollective:
    case Kind::kHostReduce:
    case Kind::kBarrier:
      return absl::StrCat(call.what, " among ranks ", absl::StrJoin(call.group.ranks, ","));
  }
  CHECK(false);
  return "";
}

// A Lane carries the calls that are started in one of the two ways, in their order.
struct Lane {
  std::deque<const RecordedCall*> started;   // and not done, in order
  std::deque<const RecordedCall*> unwaited;  // started and not waited for, in order
  int64_t done_ticket = 0;                   // of what was started

  void Start(const RecordedCall* call) {
    started.push_back(call);
    unwaited.push_back(call);
  }
};

// One rank on its way through its calls.
struct Runner {
  const RecordedCalls* calls = nullptr;
  size_t next = 0;
  bool posted = false;        // the transfers of the exchange at `next`
  size_t transfers_left = 0;  // of those
  Lane passing, beside;       // of Start, and of StartBeside

  bool at_end() const { return next == calls->size(); }
  const RecordedCall* call() const { return at_end() ? nullptr : &(*calls)[next]; }
};

class World {
 public:
  explicit World(const std::vector<RecordedCalls>& by_rank) : runners_(by_rank.size()) {
    for (size_t rank = 0; rank < by_rank.size(); ++rank) runners_[rank].calls = &by_rank[rank];
  }

  std::vector<std::string> Run() {
    for (bool moved = true; moved && findings_.empty();) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(runners_.size()); ++rank) {
        while (findings_.empty() && (Advance(rank) || CompleteStarted(rank, &Runner::passing) ||
                                     CompleteStarted(rank, &Runner::beside))) {
          moved = true;
        }
      }
    }
    for (size_t rank = 0; findings_.empty() && rank < runners_.size(); ++rank) {
      const Runner& runner = runners_[rank];
      if (!runner.at_end()) stuck_.push_back(Text(rank, TextOf(*runner.call())));
      for (const Lane* lane : {&runner.passing, &runner.beside}) {
        if (!lane->started.empty()) stuck_.push_back(Text(rank, TextOf(*lane->started.front())));
      }
    }
    findings_.insert(findings_.end(), stuck_.begin(), stuck_.end());
    for (size_t rank = 0; findings_.empty() && rank < runners_.size(); ++rank) {
      for (const Lane* lane : {&runners_[rank].passing, &runners_[rank].beside}) {
        if (lane->unwaited.empty()) continue;
        findings_.push_back(absl::StrCat("rank ", rank, " has not waited for ",
                                         TextOf(*lane->unwaited.front()), " at its end"));
      }
    }
    return std::move(findings_);
  }

 private:
  static std::string Text(size_t rank, const std::string& call) {
    return absl::StrCat("rank ", rank, " waits for ever: ", call);
  }
  Runner& At(int rank) { return runners_[static_cast<size_t>(rank)]; }

  // One call of the rank, if it can be done now.
  bool Advance(int rank) {
    Runner& runner = At(rank);
    const RecordedCall* const call = runner.call();
    if (call == nullptr) return false;
    switch (call->kind) {
      case Kind::kStart:
        runner.passing.Start(call);
        break;
      case Kind::kStartBeside:
        runner.beside.Start(call);
        break;
      case Kind::kWait:
        if (runner.passing.done_ticket < call->ticket) return false;
        while (!runner.passing.unwaited.empty() &&
               runner.passing.unwaited.front()->ticket <= call->ticket) {
          runner.passing.unwaited.pop_front();
        }
        break;
      case Kind::kWaitBeside:
        if (!runner.beside.started.empty()) return false;
        runner.beside.unwaited.clear();
        break;
      case Kind::kExchange:
        return Exchange(rank);
      case Kind::kCollective:
      case Kind::kHostReduce:
      case Kind::kBarrier:
        return Collective(*call);
    }
    ++runner.next;
    return true;
  }

  // All ranks of the group have come to it: done for all of them.
  bool Collective(const RecordedCall& call) {
    for (const int rank : call.group.ranks) {
      const RecordedCall* const other = At(rank).call();
      if (other == nullptr || other->kind == Kind::kStart || other->kind == Kind::kStartBeside ||
          other->group != call.group) {
        return false;
      }
    }
    for (const int rank : call.group.ranks) {
      Compare(call, rank, *At(rank).call());
      for (const Lane* lane : {&At(rank).passing, &At(rank).beside}) {
        for (const RecordedCall* const started : lane->unwaited) {
          if (started->group == call.group) {
            findings_.push_back(absl::StrCat("rank ", rank, " has not waited for ",
                                             TextOf(*started), " before ", TextOf(call)));
          }
        }
      }
      ++At(rank).next;
    }
    return true;
  }

  // Completes the oldest call that `rank` has started so, if it is also the oldest that each rank
  // of the group has.
  bool CompleteStarted(int rank, Lane Runner::*lane) {
    if ((At(rank).*lane).started.empty()) return false;
    const RecordedCall& call = *(At(rank).*lane).started.front();
    for (const int other : call.group.ranks) {
      const std::deque<const RecordedCall*>& started = (At(other).*lane).started;
      if (started.empty() || started.front()->group != call.group) return false;
    }
    for (const int other : call.group.ranks) {
      Lane& own = At(other).*lane;
      Compare(call, other, *own.started.front());
      own.done_ticket = own.started.front()->ticket;
      own.started.pop_front();
    }
    return true;
  }

  void Compare(const RecordedCall& call, int rank, const RecordedCall& other) {
    if (other.kind == call.kind && other.what == call.what) return;
    findings_.push_back(absl::StrCat("rank ", call.group.ranks.front(),
                                     " and others disagree with rank ", rank, ": ", TextOf(call),
                                     "; ", TextOf(other)));
  }

  // Posts the transfers together; done when each has met its other end.
  bool Exchange(int rank) {
    Runner& runner = At(rank);
    if (!std::exchange(runner.posted, true)) {
      runner.transfers_left = runner.call()->transfers.size();
      for (const Transfer& transfer : runner.call()->transfers) Post(rank, transfer);
      return true;
    }
    if (runner.transfers_left > 0) return false;
    runner.posted = false;
    ++runner.next;
    return true;
  }

  void Post(int rank, const Transfer& transfer) {
    const auto from_to =
        transfer.send ? std::pair(rank, transfer.peer) : std::pair(transfer.peer, rank);
    std::deque<Transfer>& waiting = posted_[from_to];
    if (waiting.empty() || waiting.front().send == transfer.send) {
      waiting.push_back(transfer);
      return;
    }
    const Transfer other = waiting.front();
    waiting.pop_front();
    if (SizeText(other.data) != SizeText(transfer.data)) {
      findings_.push_back(absl::StrCat("rank ", from_to.first, " and rank ", from_to.second,
                                       " disagree on a transfer: ", SizeText(other.data), "; ",
                                       SizeText(transfer.data)));
    }
    --At(from_to.first).transfers_left;
    --At(from_to.second).transfers_left;
  }

  std::vector<Runner> runners_;
  std::map<std::pair<int, int>, std::deque<Transfer>> posted_;  // by from and to, not met yet
  std::vector<std::string> findings_, stuck_;
};

}  // namespace

BackendStatus RecordingComm::NewGroup(GroupUse, const int* ranks, int count, int* group) {
  const int round = rounds_++;
  if (count == 0) return {};
  *group = static_cast<int>(groups_.size());
  groups_.push_back({.round = round, .ranks = {ranks, ranks + count}});
  return {};
}

BackendStatus RecordingComm::Record(RecordedCall::Kind kind, const CollectiveCall& call,
                                    int64_t ticket) {
  calls_.push_back({.kind = kind, .group = Of(call.group), .what = TextOf(call), .ticket = ticket});
  return {};
}

// Totals become zeros, which are finite whatever this rank alone has made of its weights.
BackendStatus RecordingComm::AllReduce(int group, ReduceOp op, View data) {
  if (data.dtype == DType::kF64) {
    std::fill_n(static_cast<double*>(data.data), data.elements(), 0.0);
  }
  return Record(Kind::kCollective,
                {.kind = CollectiveKind::kAllReduce, .group = group, .op = op, .data = data}, 0);
}

BackendStatus RecordingComm::ReduceScatter(int group, ReduceOp op, View data) {
  return Record(Kind::kCollective,
                {.kind = CollectiveKind::kReduceScatter, .group = group, .op = op, .data = data},
                0);
}

BackendStatus RecordingComm::AllGather(int group, View data) {
  return Record(Kind::kCollective,
                {.kind = CollectiveKind::kAllGather, .group = group, .data = data}, 0);
}

// The sum of known values is as it has to be, or nothing begins. All others are zeros, which are
// finite whatever this rank alone has made of its weights.
BackendStatus RecordingComm::AllReduceHost(int group, ReduceOp op, double* values, int count) {
  const std::vector<double> part = WorldPart(rank_, world_size_);
  const bool is_proof = std::equal(part.begin(), part.end(), values, values + count);
  std::fill_n(values, count, 0.0);
  for (int rank = 0; is_proof && rank < world_size_; ++rank) {
    const std::vector<double> each = WorldPart(rank, world_size_);
    for (size_t i = 0; i < each.size(); ++i) values[i] += each[i];
  }
  calls_.push_back(
      {.kind = Kind::kHostReduce,
       .group = Of(group),
       .what = absl::StrCat("reduction ", static_cast<int>(op), " of ", count, " doubles")});
  return {};
}

BackendStatus RecordingComm::Exchange(const Transfer* transfers, int count) {
  calls_.push_back({.kind = Kind::kExchange, .transfers = {transfers, transfers + count}});
  return {};
}

BackendStatus RecordingComm::Barrier(int group) {
  calls_.push_back({.kind = Kind::kBarrier, .group = Of(group), .what = "barrier"});
  return {};
}

BackendStatus RecordingComm::Start(const CollectiveCall& collective, int64_t* ticket) {
  *ticket = ++started_;
  return Record(Kind::kStart, collective, *ticket);
}

BackendStatus RecordingComm::Wait(int64_t ticket) {
  calls_.push_back({.kind = Kind::kWait, .ticket = ticket});
  return {};
}

BackendStatus RecordingComm::StartBeside(const CollectiveCall& collective) {
  return Record(Kind::kStartBeside, collective, 0);
}

BackendStatus RecordingComm::WaitBeside() {
  calls_.push_back({.kind = Kind::kWaitBeside});
  return {};
}

std::vector<std::string> Replay(const std::vector<RecordedCalls>& by_rank) {
  return World(by_rank).Run();
}

}  // namespace weft
