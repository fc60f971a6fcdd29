// HeldLease is the right of this host's ranks to go on, as its agent knows it: leases of the
// coordinator, or the time that one which ends has promised until another one is there. Pure: times
// are arguments, in milliseconds of CLOCK_BOOTTIME.
#pragma once
#include <cstdint>
#include <optional>

namespace weft {

class HeldLease {
 public:
  // The ranks are told this (proto/agent.proto, Lease).
  struct ForRanks {
    int64_t stop_at_ms = 0;
    int64_t heartbeat_ms = 0;
    bool replaces = false;
    bool is_absence = false;
    friend bool operator==(const ForRanks&, const ForRanks&) = default;
  };

  // Another stream is dialled: what comes on it comes after the absence.
  void BeginStream() { is_absence_over_ = true; }

  // The answer to a heartbeat that was sent then. A lease runs from that, so it ends here before it
  // does at the coordinator. That of a stream which comes after an absence takes the place of the
  // time that was promised for it: the coordinator has to be able to tell the silent from the
  // absent. None: a promise holds, and is longer.
  std::optional<ForRanks> Take(int64_t sent_ms, int64_t lease_ms);

  // The coordinator ends for a while, on the stream that is about to end with it. `absent_ms`
  // counts from when the newest lease was asked for. None: there was no lease.
  std::optional<ForRanks> TakeAbsence(int64_t absent_ms);

  // When what runs here has to be gone; 0: there was no lease.
  int64_t end_ms() const { return end_ms_; }
  // When ranks stop themselves, which is before that.
  int64_t ranks_stop_ms() const { return ranks_stop_ms_; }
  // How long the newest one is.
  int64_t length_ms() const { return length_ms_; }
  bool has_promise() const { return has_promise_; }

  // A coordinator that is away for longer is not waited for.
  static constexpr int64_t kLongestMs = 3600000;

 private:
  int64_t length_ms_ = 8000;
  int64_t sent_ms_ = 0;  // when the newest one was asked for
  int64_t end_ms_ = 0;
  int64_t ranks_stop_ms_ = 0;
  bool has_promise_ = false;      // the two ends are of an absence
  bool is_absence_over_ = false;  // the stream that is open came after it
  bool had_promise_ = false;
};

}  // namespace weft
