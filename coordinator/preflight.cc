#include "coordinator/preflight.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/turning_points.h"

namespace weft {
namespace {

constexpr size_t kMostNamed = 16;  // hosts that a message speaks of one by one

const HostCheck* FindCheck(const Job& job, const std::string& machine) {
  const auto offer = job.offers.find(machine);
  const auto check = job.checks.find(machine);
  const bool is_of_this_agent = offer != job.offers.end() && check != job.checks.end() &&
                                check->second.round > 0 &&
                                check->second.agent_pid == offer->second.agent_pid;
  return is_of_this_agent ? &check->second : nullptr;
}

std::string FindingText(const HostFinding& finding) {
  std::string text = absl::StrCat(finding.name, ": ", finding.found);
  if (!finding.allowed.empty()) absl::StrAppend(&text, ", but ", finding.allowed);
  if (!finding.cure.empty()) absl::StrAppend(&text, "; ", finding.cure);
  return text;
}

// Nothing was heard of the check: it may still come.
bool IsUnanswered(const HostCheck& check) {
  return check.findings.size() == 1 && check.findings.front().name == kNoAnswer;
}

bool HasLiveRanks(const Job& job, const std::string& machine) {
  const std::vector<HostShare>& shares = job.generation.shares;
  return IsLive(job.generation.phase) &&
         std::any_of(shares.begin(), shares.end(),
                     [&](const HostShare& share) { return share.machine == machine; });
}

// Returns what the host says of itself.
std::vector<HostFinding> OwnFaults(const HostCheck& check) {
  std::vector<HostFinding> faults;
  for (const HostFinding& finding : check.findings) {
    if (finding.severity == Severity::kBroken) faults.push_back(finding);
  }
  return faults;
}

// The median of all but one of `sorted`, which holds that one at `index`.
double MedianWithout(const std::vector<double>& sorted, size_t index) {
  const size_t rest = sorted.size() - 1;
  const auto at = [&](size_t place) { return sorted[place < index ? place : place + 1]; };
  if (rest == 0) return 0;
  return rest % 2 == 1 ? at(rest / 2) : (at(rest / 2 - 1) + at(rest / 2)) / 2;
}

// Who computes too slowly to keep up with the others.
void JudgeRates(const Job& job, Fitness& fitness) {
  std::vector<std::pair<double, std::string>> rates;
  for (const std::string& machine : fitness.fit) {
    const double rate = FindCheck(job, machine)->product_flops_per_s;
    if (rate > 0) rates.emplace_back(rate, machine);
  }
  std::sort(rates.begin(), rates.end());
  std::vector<double> sorted;
  for (const auto& [rate, machine] : rates) sorted.push_back(rate);
  for (size_t i = 0; i < rates.size(); ++i) {
    const double others = MedianWithout(sorted, i);
    const auto& [rate, machine] = rates[i];
    if (others == 0 || rate >= kUsualRate * others) continue;
    const bool is_unfit = rate < kLeastRate * others;
    (is_unfit ? fitness.unfit : fitness.slow)[machine] = {
        {"product", is_unfit ? Severity::kBroken : Severity::kNote,
         absl::StrFormat("%.1f GFLOP/s, %.2f of the others", rate / 1e9, rate / others),
         absl::StrFormat("their median is %.1f", others / 1e9),
         "look for other processes, a lower clock (heat, power) or a smaller quota there"}};
  }
  std::erase_if(fitness.fit,
                [&](const std::string& machine) { return fitness.unfit.count(machine) > 0; });
}

using Pairs = std::map<std::string, std::map<std::string, std::string>>;  // both ways, with words

// Returns what the hosts of `among` say of each other, as far as it still counts: one that was
// checked anew since then is spoken of in a newer round.
Pairs FailedPairs(const Job& job, const std::vector<std::string>& among) {
  const std::set<std::string> here(among.begin(), among.end());
  Pairs pairs;
  for (const std::string& machine : among) {
    const HostCheck& check = *FindCheck(job, machine);
    for (const UnreachedHost& other : check.unreached) {
      if (here.count(other.machine) == 0) continue;
      if (check.pairs_round < FindCheck(job, other.machine)->round) continue;
      const std::string& from = job.offers.at(machine).host;
      const std::string& to = job.offers.at(other.machine).host;
      const std::string text = absl::StrCat(from, " does not reach ", to, " (", other.why, ")");
      for (const auto& [a, b] :
           {std::pair(machine, other.machine), std::pair(other.machine, machine)}) {
        std::string& words = pairs[a][b];
        absl::StrAppend(&words, words.empty() ? "" : ", ", text);
      }
    }
  }
  return pairs;
}

// Leaves hosts out until the rest reach each other.
void JudgePairs(const Job& job, Fitness& fitness) {
  Pairs pairs = FailedPairs(job, fitness.fit);
  while (!pairs.empty()) {
    const auto worst =
        std::max_element(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
          const auto rank = [&](const auto& each) {
            return std::tuple(each.second.size(), !HasLiveRanks(job, each.first),
                              job.offers.at(each.first).host, each.first);
          };
          return rank(a) < rank(b);
        });
    const std::string machine = worst->first;
    std::vector<std::string> texts;
    for (const auto& [other, text] : worst->second) texts.push_back(text);
    if (texts.size() > kMostNamed) {
      const size_t more = texts.size() - kMostNamed;
      texts.resize(kMostNamed);
      texts.push_back(absl::StrCat(more, " more"));
    }
    fitness.unfit[machine] = {
        {"pairs", Severity::kBroken, absl::StrJoin(texts, ", "), "all have to reach each other",
         "look at routes and firewalls between them, or name the network that all are in by "
         "cluster.network"}};
    std::erase(fitness.fit, machine);
    pairs.erase(machine);
    for (auto& [each, others] : pairs) others.erase(machine);
    std::erase_if(pairs, [](const auto& each) { return each.second.empty(); });
  }
}

std::string NamedText(const Job& job, const HostFindings& hosts, absl::string_view is,
                      absl::string_view between) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const auto& [machine, findings] : hosts) {
    std::vector<std::string> texts;
    for (const HostFinding& finding : findings) texts.push_back(FindingText(finding));
    named.emplace_back(job.offers.at(machine).host, absl::StrJoin(texts, "; "));
  }
  std::sort(named.begin(), named.end());
  std::string text;
  for (size_t i = 0; i < named.size() && i < kMostNamed; ++i) {
    absl::StrAppend(&text, between, "host ", named[i].first, is, ": ", named[i].second);
  }
  if (named.size() > kMostNamed) {
    absl::StrAppend(&text, between, named.size() - kMostNamed, " more hosts");
  }
  return text;
}

}  // namespace

bool Record(const HostChecked& fact, Job& job) {
  const auto offer = job.offers.find(fact.machine);
  if (offer == job.offers.end() || offer->second.agent_pid != fact.agent_pid) return false;
  HostCheck check = job.checks[fact.machine];
  const bool is_late = fact.round == check.round && IsUnanswered(check);
  if (fact.round <= std::max(check.round, check.pairs_round) && !is_late) return false;
  if (fact.pairs_only && check.round == 0) return false;
  check.agent_pid = fact.agent_pid;
  check.pairs_round = fact.round;
  check.unreached = fact.unreached;
  if (!fact.pairs_only) {
    check.round = fact.round;
    check.product_flops_per_s = fact.product_flops_per_s;
    check.findings.clear();
    for (const HostFinding& finding : fact.findings) {
      if (finding.severity != Severity::kWell) check.findings.push_back(finding);
    }
  }
  job.checks[fact.machine] = std::move(check);
  SettleFitness(job);
  return true;
}

std::vector<std::string> HostsToCheck(const Job& job) {
  std::vector<std::string> machines;
  const bool is_planned = !job.id.empty() && job.phase != Phase::kSubmitted && !IsOver(job.phase);
  if (!is_planned || !job.spec.fault_tolerance.preflight) return machines;
  for (const auto& [machine, offer] : job.offers) {
    if (FindCheck(job, machine) == nullptr) machines.push_back(machine);
  }
  return machines;
}

std::vector<std::string> HostsToCheckAgain(const Job& job) {
  std::vector<std::string> machines;
  const bool is_planned = !job.id.empty() && job.phase != Phase::kSubmitted && !IsOver(job.phase);
  if (!is_planned) return machines;
  for (const auto& [machine, findings] : FitnessOf(job).unfit) {
    if (!HasLiveRanks(job, machine)) machines.push_back(machine);
  }
  return machines;
}

bool AllHaveCome(const Job& job) {
  const auto here = static_cast<int>(job.offers.size());
  if (job.expected_hosts > 0 && here >= job.expected_hosts) return true;
  return here >= job.spec.cluster.nodes + job.spec.hosts.spares;
}

Fitness FitnessOf(const Job& job) {
  Fitness fitness;
  for (const auto& [machine, offer] : job.offers) {
    const HostCheck* const check = FindCheck(job, machine);
    if (!job.spec.fault_tolerance.preflight) {
      fitness.fit.push_back(machine);
    } else if (check == nullptr) {
      ++fitness.unchecked;
    } else if (auto faults = OwnFaults(*check); !faults.empty()) {
      fitness.unfit[machine] = std::move(faults);
    } else {
      fitness.fit.push_back(machine);
    }
  }
  if (job.spec.fault_tolerance.preflight) {
    JudgeRates(job, fitness);
    JudgePairs(job, fitness);
  }
  return fitness;
}

bool LackChecks(const Job& job) {
  return job.spec.fault_tolerance.preflight && job.checks.size() < job.offers.size();
}

bool WaitsForChecks(const Job& job, const Fitness& fitness) {
  const auto fit = static_cast<int>(fitness.fit.size());
  return fitness.unchecked > 0 && !(job.was_launched && fit >= job.spec.cluster.nodes);
}

int HostsInHand(const Job& job) {
  const Fitness fitness = FitnessOf(job);
  return static_cast<int>(fitness.fit.size()) + fitness.unchecked;
}

bool SettleFitness(Job& job) {
  Generation& generation = job.generation;
  if (generation.phase != GenerationPhase::kOpen || job.phase == Phase::kSubmitted) return false;
  if (!generation.waited && !AllHaveCome(job)) return false;
  if (LackChecks(job)) return false;
  const Fitness fitness = FitnessOf(job);
  const auto fit = static_cast<int>(fitness.fit.size());
  const int least = LeastHosts(job.spec);
  if (fitness.unchecked > 0 || fitness.unfit.empty() || fit >= least) return false;
  const std::string count =
      least == 1 ? "" : absl::StrCat(fit, " of at least ", least, " hosts passed their check");
  std::string named = NamedText(job, fitness.unfit, "", "\n");
  if (count.empty()) named.erase(0, 1);
  const auto silent = std::count_if(fitness.unfit.begin(), fitness.unfit.end(), [&](auto& host) {
    return IsUnanswered(job.checks.at(host.first));
  });
  if (job.was_launched || fit + silent >= least) {
    const std::string reason = absl::StrCat("waiting for hosts: ", count, named);
    return std::exchange(job.reason, reason) != reason;
  }
  generation.phase = GenerationPhase::kClosed;
  job.phase = Phase::kFailed;
  job.reason = absl::StrCat(count, named);
  return true;
}

std::string LeftOutText(const Job& job) {
  if (!job.spec.fault_tolerance.preflight) return "";
  const Fitness fitness = FitnessOf(job);
  return NamedText(job, fitness.unfit, " is left out", "; ") +
         NamedText(job, fitness.slow, " is slow", "; ");
}

}  // namespace weft
