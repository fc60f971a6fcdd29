// How long a call takes that all ranks of a group make together, on a machine that may be busy: a
// call may then take a thousand times as long as the one before. A call counts until the device is
// through with it. Beside probe.h; one thread a rank.
#pragma once
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/comm.h"
#include "worker/backend/device.h"

namespace weft {

class LinkTimer {
 public:
  // `group`: of the ranks that time together; borrowed Device, Comm. `seconds`: to spend on one
  // kind of call, but each is made three times at least. `now_s`: a clock, in seconds.
  LinkTimer(Device& device, Comm& comm, int group, double seconds, std::function<double()> now_s);

  // Seconds of one call: the least mean of a few repetitions, of the slowest rank. Every rank makes
  // as many calls as the others. An error is the call's own, or the Comm's.
  absl::StatusOr<double> Time(const std::function<absl::Status()>& call);

 private:
  Device& device_;
  Comm& comm_;
  int group_;
  double seconds_;
  std::function<double()> now_s_;
};

}  // namespace weft
