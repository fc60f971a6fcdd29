// The nodes that have failed a run are remembered across its allocations, for an hour: a job that
// is queued again leaves them out, as long as enough others are there. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct FailedHost {
  std::string name;
  std::vector<int64_t> failed_unix_s = {};  // oldest first
  bool is_back = false;                     // it was heard again after the newest of them
  std::string reason = {};                  // of the newest
  friend bool operator==(const FailedHost&, const FailedHost&) = default;
};

// Takes down that the host has failed. What is over an hour old is forgotten.
void TakeFailure(const std::string& host, absl::string_view reason, int64_t now_unix_s,
                 std::vector<FailedHost>* hosts);
// Takes down that it was heard again. Says whether that changes anything.
bool TakeReturn(const std::string& host, std::vector<FailedHost>* hosts);

// Returns the time until which the host is to be left out: an hour after its newest failure, if it
// did not come back after it, or has failed too often (plan/host_failures.h). 0: it is not.
int64_t LeftOutUntil(const FailedHost& host, int64_t now_unix_s);

struct ChosenHosts {
  std::vector<std::string> use;        // in the order of the allocation
  std::vector<FailedHost> left_out;    // of those that are in it
  std::vector<FailedHost> used_still;  // they would be left out if there were enough others
};

// Leaves out what LeftOutUntil says while at least `least` hosts are left; those that failed
// longest ago are taken first where there are too few.
ChosenHosts ChooseHosts(const std::vector<std::string>& allocation,
                        const std::vector<FailedHost>& failed, int least, int64_t now_unix_s);

// "host h2 is left out until 19:03: REASON"
std::string LeftOutLine(const FailedHost& host, absl::string_view until);

}  // namespace weft
