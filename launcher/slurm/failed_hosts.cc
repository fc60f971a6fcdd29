#include "launcher/slurm/failed_hosts.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "plan/host_failures.h"

namespace weft {
namespace {

std::vector<FailedHost>::iterator Find(const std::string& name, std::vector<FailedHost>* hosts) {
  return std::find_if(hosts->begin(), hosts->end(),
                      [&](const FailedHost& each) { return each.name == name; });
}

bool IsOver(int64_t failed_unix_s, int64_t now_unix_s) {
  return failed_unix_s <= now_unix_s - kHostFailuresWithinS;
}

}  // namespace

void TakeFailure(const std::string& host, absl::string_view reason, int64_t now_unix_s,
                 std::vector<FailedHost>* hosts) {
  if (Find(host, hosts) == hosts->end()) hosts->push_back({.name = host});
  FailedHost& failed = *Find(host, hosts);
  failed.failed_unix_s.push_back(now_unix_s);
  failed.is_back = false;
  failed.reason = std::string(reason);
  for (FailedHost& each : *hosts) {
    std::erase_if(each.failed_unix_s, [&](int64_t at) { return IsOver(at, now_unix_s); });
  }
  std::erase_if(*hosts, [](const FailedHost& each) { return each.failed_unix_s.empty(); });
}

bool TakeReturn(const std::string& host, std::vector<FailedHost>* hosts) {
  const auto found = Find(host, hosts);
  if (found == hosts->end() || found->is_back) return false;
  found->is_back = true;
  return true;
}

int64_t LeftOutUntil(const FailedHost& host, int64_t now_unix_s) {
  const auto recent =
      std::count_if(host.failed_unix_s.begin(), host.failed_unix_s.end(),
                    [&](int64_t failed_unix_s) { return !IsOver(failed_unix_s, now_unix_s); });
  if (recent == 0 || (host.is_back && recent < kHostFailuresToLeaveOut)) return 0;
  return host.failed_unix_s.back() + kHostLeftOutS;
}

ChosenHosts ChooseHosts(const std::vector<std::string>& allocation,
                        const std::vector<FailedHost>& failed, int least, int64_t now_unix_s) {
  const std::set<std::string> granted(allocation.begin(), allocation.end());
  std::vector<FailedHost> bad;
  for (const FailedHost& host : failed) {
    if (granted.count(host.name) > 0 && LeftOutUntil(host, now_unix_s) > 0) bad.push_back(host);
  }
  std::stable_sort(bad.begin(), bad.end(), [](const FailedHost& a, const FailedHost& b) {
    return a.failed_unix_s.back() > b.failed_unix_s.back();
  });
  const auto spare = static_cast<size_t>(std::max<int64_t>(std::ssize(allocation) - least, 0));
  const auto kept = bad.begin() + static_cast<int64_t>(std::min(spare, bad.size()));
  ChosenHosts chosen{.use = {}, .left_out = {bad.begin(), kept}, .used_still = {kept, bad.end()}};
  for (const std::string& host : allocation) {
    const bool is_out = std::any_of(chosen.left_out.begin(), chosen.left_out.end(),
                                    [&](const FailedHost& each) { return each.name == host; });
    if (!is_out) chosen.use.push_back(host);
  }
  return chosen;
}

std::string LeftOutLine(const FailedHost& host, absl::string_view until) {
  return absl::StrCat("host ", host.name, " is left out until ", until, ": ", host.reason);
}

}  // namespace weft
