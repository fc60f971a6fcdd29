// LeaseBook grants leases to agents and remembers how long they run. A lease is answered by
// whichever thread hears a heartbeat: the book's mutex is held for a few instructions and never
// around anything that waits, so that no disk, no plan and no other lock can make a lease late.
//
// The two sides count apart and err on the safe side: a host may go on until `lease` after it sent
// the heartbeat (its ranks stop at 0.8 of it), the book counts from when it answers. What has ended
// by the book has ended on the host. Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace weft {

// No coordinator may be away for longer than this: agents give up dialling after an hour.
inline constexpr int64_t kLongestAbsenceMs = 3000000;

class LeaseBook {
 public:
  // How long leases are from now on; earlier ones keep their length.
  void SetLength(int64_t lease_ms);

  // From now on the stream's heartbeats are answered, for this machine.
  void Admit(int64_t stream, const std::string& machine);
  // The stream has ended, or is not to be answered any more. Its machine's lease runs out by
  // itself.
  void Dismiss(int64_t stream);

  // Answers a heartbeat: the length of the lease that begins at `now_ms`; none if the stream is not
  // admitted. `has_promise`: the machine lives by a promise still, or may do so; one that does not
  // has nothing but its leases.
  std::optional<int64_t> Grant(int64_t stream, int64_t now_ms, bool has_promise = false);
  // Somebody may have granted one until then: a coordinator that was here before.
  void Assume(const std::string& machine, int64_t end_ms);
  // A coordinator that was here before has promised the machine this time, before it ended.
  void Promise(const std::string& machine, int64_t end_ms);
  // The agent may live by that still.
  bool HasPromise(const std::string& machine) const;
  // The stream was told of such a time, and is to say that it knows.
  void AwaitPromise(int64_t stream);
  // All streams that were told know, or have ended.
  bool AllHavePromises() const;

  // When the newest lease of the machine ends; 0: it has none.
  int64_t EndOf(const std::string& machine) const;

 private:
  mutable std::mutex mutex_;  // guards all below
  int64_t lease_ms_ = 8000;
  std::map<int64_t, std::string> machine_of_stream_;
  std::map<std::string, int64_t> end_ms_;       // by machine
  std::map<std::string, int64_t> promised_ms_;  // the same, of promises that may hold
  std::set<int64_t> awaited_;                   // streams that do not know yet
};

}  // namespace weft
