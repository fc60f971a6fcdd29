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
#include <string>

namespace weft {

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
  // admitted.
  std::optional<int64_t> Grant(int64_t stream, int64_t now_ms);
  // Somebody may have granted one until then: a coordinator that was here before.
  void Assume(const std::string& machine, int64_t end_ms);

  // When the newest lease of the machine ends; 0: it has none.
  int64_t EndOf(const std::string& machine) const;

 private:
  mutable std::mutex mutex_;  // guards all below
  int64_t lease_ms_ = 8000;
  std::map<int64_t, std::string> machine_of_stream_;
  std::map<std::string, int64_t> end_ms_;  // by machine
};

}  // namespace weft
