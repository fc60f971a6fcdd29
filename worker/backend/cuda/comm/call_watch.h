// CallWatch: what every communicator of this backend owes its callers, whatever carries the data:
// a call ends by its deadline or soon after Interrupt(), the message says which call it was and who
// was not there, and after the first failure all later calls fail alike.
//
// Used by the communicator's thread, but for Interrupt().
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "worker/backend/comm.h"

namespace weft {

struct CallGroup {
  std::vector<int> ranks;  // ascending; empty: this rank is in no group of that round
  int position = 0;        // of this rank
  GroupUse use = GroupUse::kBlocking;
  int size() const { return static_cast<int>(ranks.size()); }
};

// Identifies a call, for messages.
struct Call {
  const char* name = "";
  int group = -1;  // -1: none
  int64_t number = 0;
  std::chrono::milliseconds timeout{0};
  std::chrono::steady_clock::time_point deadline;
};

class CallWatch {
 public:
  // Whether the ranks that a timeout names have not come, or some of them have not.
  enum class Silence { kOfAll, kOfSome };

  CallWatch(int rank, int world_size, int64_t timeout_ms, Silence silence = Silence::kOfAll)
      : rank_(rank), world_size_(world_size), timeout_(timeout_ms), silence_(silence) {}

  // Makes a group as Comm::NewGroup does; the group's number is its round.
  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group);
  const CallGroup& group(int index) const { return groups_[static_cast<size_t>(index)]; }
  int rounds() const { return static_cast<int>(groups_.size()); }

  // Fails if a call has failed before, or was interrupted, or `group` is not one of this rank's.
  BackendStatus Begin(const char* name, int group, Call* call);
  // CheckStarted of started_call.h, for groups that are known.
  BackendStatus CheckStart(const CollectiveCall& call, GroupUse use) const;
  // Fails if `elements` are not one equal range per rank of the call's group.
  BackendStatus CheckRanges(const Call& call, int64_t elements) const;
  // Begin, for data that is one range per rank.
  BackendStatus BeginRanges(const char* name, int group, int64_t elements, Call* call);

  // Calls poll() until it returns true, yielding at first and then napping. poll(silent) may name
  // in *silent the ranks it waits for.
  template <typename Poll>
  BackendStatus Wait(const Call& call, const Poll& poll) {
    std::vector<int> silent;
    for (int64_t round = 0;; ++round) {
      // Before the look: what came while this thread had no core has come.
      const bool is_late = std::chrono::steady_clock::now() > call.deadline;
      silent.clear();
      if (poll(&silent)) return {};
      if (interrupted_) return Break(Interruption(call.name));
      if (is_late) return Break(Timeout(call, silent));
      Pause(round);
    }
  }

  // Remembers the first failure, which all later calls return.
  BackendStatus Break(const BackendStatus& failure);

  void Interrupt(const char* why);

  // Between two polls, the `round`-th (from 0): yields at first, naps later.
  static void Pause(int64_t round);

  // From any thread: `call` is over its time; `failure` came while `call` was under way.
  BackendStatus Timeout(const Call& call, std::vector<int> silent) const;
  BackendStatus During(const Call& call, const BackendStatus& failure) const;

 private:
  std::string NameOf(const Call& call) const;
  BackendStatus Interruption(const char* name);

  const int rank_;
  const int world_size_;
  const std::chrono::milliseconds timeout_;
  const Silence silence_;
  std::vector<CallGroup> groups_;  // by round
  int64_t calls_ = 0;
  BackendStatus broken_;

  std::atomic<bool> interrupted_ = false;
  std::mutex why_mutex_;  // guards why_
  std::string why_;
};

}  // namespace weft
