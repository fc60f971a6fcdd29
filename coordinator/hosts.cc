#include "coordinator/hosts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/host_memory.h"
#include "coordinator/offered_slots.h"
#include "coordinator/preflight.h"
#include "coordinator/turning_points.h"
#include "plan/errors.h"
#include "plan/placement/placement.h"
#include "plan/spec/failure_domains.h"

namespace weft {
namespace {

HostShare* FindShare(Job& job, int64_t generation, const std::string& machine) {
  if (generation != job.generation.number) return nullptr;
  for (HostShare& share : job.generation.shares) {
    if (share.machine == machine) return &share;
  }
  return nullptr;
}

bool MayRun(const Job& job) {
  return IsLive(job.generation.phase) || job.generation.phase == GenerationPhase::kStopping;
}

// Nothing is left of the share.
void SetGone(HostShare& share, Job& job) {
  share.gone = true;
  const bool all = std::all_of(job.generation.shares.begin(), job.generation.shares.end(),
                               [](const HostShare& each) { return each.gone; });
  if (all) Close(job);
}

// Hosts that it was to grow by may go again before the checkpoint at which they would be taken.
void WithdrawGrowth(Job& job) {
  if (!MayGrow(job)) job.generation.grows = false;
}

bool AreFinished(const Job& job, const HostShare& share) {
  return std::all_of(share.ranks.begin(), share.ranks.end(), [&](int rank) {
    const Member* member = job.generation.members.Find(rank);
    return member != nullptr && member->phase == MemberPhase::kFinished;
  });
}

std::string NamesOf(const Job& job) {
  std::vector<std::string> names;
  for (const auto& [machine, offer] : job.offers) names.push_back(offer.host);
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, ", ");
}

// The agent's word comes before the job's file; empty: nothing is known.
std::string KnownDomain(const OfferedHost& host, const JobSpec& spec) {
  if (!host.domain.empty() || spec.hosts.failure_domains.empty()) return host.domain;
  return DomainOf(spec.hosts.failure_domains, host.host).value_or("");
}

// Empty: the agent says nothing else than the job's file does.
std::string DomainContradiction(const OfferedHost& host, const JobSpec& spec) {
  if (host.domain.empty()) return "";
  const absl::StatusOr<std::string> filed = DomainOf(spec.hosts.failure_domains, host.host);
  if (!filed.ok() || *filed == host.domain) return "";
  return absl::StrCat(host.host, " is in ", host.domain, ", as its agent says; ",
                      "cluster.failure_domains says ", *filed);
}

// Returns how many ranks each host may have in turn, where it takes `each`: where agents offer more
// than there is a plan for, what the job was submitted with may do; where memory binds that ranks
// of a host share, fewer of them have more.
std::vector<int> CountsToTry(int each, const ClusterShape& shape, const Job& job) {
  std::vector<int> counts = {each, std::min(each, job.spec.cluster.slots_per_node)};
  const bool shares = job.spec.cluster.device.backend == BackendKind::kCpu;
  for (int fewer = each - 1; fewer >= 1 && shares && shape.slot_bytes > 0; --fewer) {
    counts.push_back(fewer);
  }
  return counts;
}

// Returns the shape with the most slots among those that differ in how many hosts they use; of
// equals the one with the most hosts.
std::optional<ClusterShape> LargestShapeOf(const Job& job, const std::vector<std::string>& fit) {
  std::vector<int> slots;
  for (const std::string& machine : fit) slots.push_back(SlotsOf(job.offers.at(machine), job));
  std::sort(slots.begin(), slots.end(), std::greater<>());
  MemoryRanking memory(job, fit);
  std::optional<ClusterShape> largest;
  const int most = std::min(static_cast<int>(fit.size()), job.spec.cluster.nodes);
  for (int nodes = most; nodes >= LeastHosts(job.spec); --nodes) {
    const int each = slots[static_cast<size_t>(nodes - 1)];
    if (largest && int64_t{nodes} * each <= largest->slots()) continue;
    for (const int count : CountsToTry(each, memory.ShapeOf(nodes, each), job)) {
      const ClusterShape shape = memory.ShapeOf(nodes, count);
      if (IsRefused(shape, job)) continue;
      if (!largest || shape.slots() > largest->slots()) largest = shape;
      break;
    }
  }
  return largest;
}

}  // namespace

bool Record(const HostOffered& fact, Job& job) {
  const OfferedHost offer = {fact.host,           fact.slots,   fact.addresses, fact.agent_pid,
                             fact.gpus,           fact.cores,   fact.domain,    fact.free_bytes,
                             fact.gpu_free_bytes, fact.gpu_text};
  const auto fenced = job.fenced.find(fact.machine);
  if (fenced != job.fenced.end()) {
    if (fenced->second == fact.agent_pid) return false;
    job.fenced.erase(fenced);
  }
  const auto leaving = job.leaving.find(fact.machine);
  if (leaving != job.leaving.end()) {
    if (leaving->second.agent_pid == fact.agent_pid) return false;
    job.leaving.erase(leaving);
  }
  const auto [place, is_new] = job.offers.try_emplace(fact.machine, offer);
  if (!is_new && place->second == offer) return false;
  place->second = offer;
  return true;
}

bool Record(const HostAway& fact, Job& job) {
  if (job.offers.erase(fact.machine) == 0) return false;
  WithdrawGrowth(job);
  return true;
}

// Its lease is over: what ran there has ended itself, and does not come back.
bool Record(const HostLost& fact, Job& job) {
  const bool was_offered = job.offers.erase(fact.machine) > 0;
  const bool was_known = job.checks.erase(fact.machine) > 0 || was_offered;
  if (was_offered) WithdrawGrowth(job);
  HostShare* const share = FindShare(job, fact.generation, fact.machine);
  if (share == nullptr || share->gone || !MayRun(job)) return was_known;
  const std::string host = share->host;
  if (IsLive(job.generation.phase)) {
    Fail(job,
         {CauseKind::kRoot, share->ranks.empty() ? -1 : share->ranks.front(), host,
          absl::StrCat("host ", host, " lost: ", fact.reason)},
         /*permanent=*/false);
  }
  SetGone(*share, job);
  return true;
}

// A process that cannot be killed obeys the lease like every other. The host is left out until an
// agent comes that has found nothing there.
bool Record(const HostFenced& fact, Job& job) {
  HostShare* const share = FindShare(job, fact.generation, fact.machine);
  if (share == nullptr || share->gone || !MayRun(job)) return false;
  const auto offer = job.offers.find(fact.machine);
  const int64_t agent_pid = offer == job.offers.end() ? 0 : offer->second.agent_pid;
  if (!job.fenced.try_emplace(fact.machine, agent_pid).second) return false;
  job.offers.erase(fact.machine);
  job.checks.erase(fact.machine);
  WithdrawGrowth(job);
  if (!IsOver(job.phase)) {
    job.reason = absl::StrCat("host ", share->host, " is fenced: ", fact.reason);
  }
  return true;
}

// A generation that trains saves first, so that no step is lost; one that has not begun to has
// nothing to save.
bool Record(const HostLeaves& fact, Job& job) {
  const auto offer = job.offers.find(fact.machine);
  const HostShare* const share = FindShare(job, job.generation.number, fact.machine);
  const bool has_share = share != nullptr && !share->gone;
  const bool is_offered = offer != job.offers.end();
  if (!is_offered && !has_share) return false;
  LeavingHost host = {has_share ? share->host : offer->second.host,
                      is_offered ? offer->second.agent_pid : 0};
  if (!job.leaving.try_emplace(fact.machine, std::move(host)).second) return false;
  job.offers.erase(fact.machine);
  job.checks.erase(fact.machine);
  WithdrawGrowth(job);
  if (job.id.empty() || IsOver(job.phase) || job.stop != StopLevel::kNone) return true;
  if (job.generation.phase == GenerationPhase::kOpen && LacksHosts(job)) {
    CloseForLackOfHosts(job);
  } else if (has_share && job.generation.phase == GenerationPhase::kTraining) {
    job.generation.yields = true;
    job.phase = Phase::kDraining;
    job.reason = absl::StrCat(LeavingText(job), ": saving");
  } else if (has_share && IsLive(job.generation.phase)) {
    EndGeneration(job, {CauseKind::kOrdered, -1, "", LeavingText(job)});
    job.phase = Phase::kRecovering;
    job.reason = absl::StrCat(LeavingText(job), "; resuming after step ", job.newest().step);
  }
  return true;
}

bool Record(const HostsAwaited& fact, Job& job) {
  Generation& generation = job.generation;
  if (fact.generation != generation.number || generation.phase != GenerationPhase::kOpen ||
      generation.waited) {
    return false;
  }
  generation.waited = true;
  if (!job.was_launched && LacksHosts(job)) {
    CloseForLackOfHosts(job);
    return true;
  }
  if (SettleFitness(job)) return true;
  const int here = HostsInHand(job);
  if (here < LeastHosts(job.spec)) {
    job.reason =
        absl::StrCat("waiting for hosts: ", here, " of at least ", LeastHosts(job.spec),
                     here == 0 ? " are there" : absl::StrCat(" are there: ", NamesOf(job)));
  }
  return true;
}

bool Record(const LaunchWaits& fact, Job& job) {
  const Generation& generation = job.generation;
  if (fact.generation != generation.number || generation.phase != GenerationPhase::kOpen ||
      fact.reason == job.reason) {
    return false;
  }
  job.reason = fact.reason;
  return true;
}

bool Record(const MoreHosts& fact, Job& job) {
  Generation& generation = job.generation;
  if (fact.generation != generation.number || !IsLive(generation.phase) || generation.grows) {
    return false;
  }
  generation.grows = true;  // taken at the next checkpoint, so that no step is lost by it
  return true;
}

// An agent vouches for its own machine alone.
bool Record(const AttemptEnded& fact, Job& job) {
  HostShare* const share = FindShare(job, fact.generation, fact.machine);
  if (share == nullptr || share->gone || !MayRun(job)) return false;
  if (!fact.clean) {
    const RankEnded end = {fact.generation, fact.rank,    fact.host,       fact.signal,
                           fact.exit_code,  fact.message, fact.last_stderr};
    Fail(job, CauseOf(end, job), /*permanent=*/false);
  } else if (job.generation.phase != GenerationPhase::kStopping && !AreFinished(job, *share)) {
    Fail(job,
         {CauseKind::kRoot, -1, "", "the workers exited with 0 before the last step was reported"},
         /*permanent=*/false);
  }
  SetGone(*share, job);
  return true;
}

ClusterShape ShapeOr(ClusterShape shape, const JobSpec& spec) {
  if (shape.nodes == 0) shape.nodes = spec.cluster.nodes;
  if (shape.slots_per_node == 0) shape.slots_per_node = spec.cluster.slots_per_node;
  return shape;
}

std::string SlotsNote(const ClusterShape& shape, const JobSpec& spec) {
  if (shape.slots_per_node == spec.cluster.slots_per_node) return "";
  const int said = spec.cluster.slots_per_node;
  if (shape.slots_per_node > said) {
    return absl::StrCat(" with ", shape.slots_per_node, " slots each, as they offer, not ", said);
  }
  return absl::StrCat(" with ", shape.slots_per_node, " of ", said, " slots each");
}

std::string SmallHostsText(const Job& job) {
  if (job.slots_as_offered) return "";  // nobody has asked for more
  std::vector<std::string> small;
  for (const auto& [machine, host] : job.offers) {
    const int slots = SlotsOf(host, job);
    if (slots < job.spec.cluster.slots_per_node) {
      small.push_back(absl::StrCat(host.host, " offers ", slots));
    }
  }
  if (small.empty()) return "";
  std::sort(small.begin(), small.end());
  return absl::StrCat(absl::StrJoin(small, ", "), " of the ", job.spec.cluster.slots_per_node,
                      " slots that ", SlotsKey(job.spec.cluster.device.backend),
                      " says of each: start its agent with more --slots, or change the job");
}

std::optional<ClusterShape> LargestShape(const Job& job) {
  return LargestShapeOf(job, FitnessOf(job).fit);
}

bool MayGrow(const Job& job) {
  const std::optional<ClusterShape> largest = LargestShape(job);
  return largest && largest->slots() > job.shape.slots();
}

std::optional<ClusterShape> ShapeToPlanFor(const Job& job) {
  if (static_cast<int>(job.offers.size()) < LeastHosts(job.spec)) return std::nullopt;
  if (!job.was_launched && LackChecks(job)) return std::nullopt;
  const Fitness fitness = FitnessOf(job);
  if (WaitsForChecks(job, fitness)) return std::nullopt;
  const bool all = std::ssize(fitness.fit) >= job.spec.cluster.nodes;
  if (!all && !job.generation.waited && !AllHaveCome(job)) return std::nullopt;
  return LargestShapeOf(job, fitness.fit);
}

absl::StatusOr<HostShares> SharesOf(const Job& job) {
  const bool lacks = !job.was_launched && LackChecks(job);
  const Fitness fitness = lacks ? Fitness{.unchecked = 1} : FitnessOf(job);
  if (WaitsForChecks(job, fitness)) return absl::UnavailableError("hosts are being checked");
  std::vector<std::pair<std::string, OfferedHost>> hosts;
  for (const std::string& machine : fitness.fit) {
    const auto& offer = *job.offers.find(machine);
    const bool is_large_enough = SlotsOf(offer.second, job) >= job.shape.slots_per_node;
    if (is_large_enough && HasMemoryOf(job.shape, offer.second, job)) hosts.push_back(offer);
  }
  std::sort(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.host, a.first) < std::tie(b.second.host, b.first);
  });
  if (static_cast<int>(hosts.size()) < job.shape.nodes) {
    return absl::UnavailableError(
        absl::StrCat(hosts.size(), " of ", job.shape.nodes, " hosts of the plan are there"));
  }
  std::vector<HostOffer> offers;
  for (const auto& [machine, host] : hosts) {
    offers.push_back({host.host, job.shape.slots_per_node, KnownDomain(host, job.spec)});
  }
  absl::StatusOr<Placement> placement = PlaceRanks(*job.layout, offers);
  if (!placement.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("waiting for hosts: ", placement.status().message()));
  }
  for (const auto& [machine, host] : hosts) {
    std::string contradiction = DomainContradiction(host, job.spec);
    if (!contradiction.empty()) placement->reasons.push_back(std::move(contradiction));
  }
  HostShares all{.picture = PlacementText(*job.layout, offers, *placement)};
  std::vector<HostShare>& shares = all.shares;
  std::vector<int> share_of_host(hosts.size(), -1);
  for (int rank = 0; rank < job.world_size(); ++rank) {
    const auto host = static_cast<size_t>(placement->ranks[static_cast<size_t>(rank)].host);
    if (share_of_host[host] < 0) {
      share_of_host[host] = static_cast<int>(shares.size());
      const auto& [machine, offered] = hosts[host];
      shares.push_back({machine, offered.host, offered.addresses, {}});
    }
    shares[static_cast<size_t>(share_of_host[host])].ranks.push_back(rank);
  }
  return all;
}

bool ComesWithoutItsShare(const Job& job, const std::string& machine, int64_t held_generation) {
  const HostShare* const share = FindShare(job, machine);
  if (share == nullptr || share->gone || held_generation == job.generation.number) return false;
  if (job.generation.phase != GenerationPhase::kLaunched) return MayRun(job);
  return std::any_of(share->ranks.begin(), share->ranks.end(),
                     [&](int rank) { return job.generation.members.Find(rank) != nullptr; });
}

const HostShare* FindShare(const Job& job, const std::string& machine) {
  for (const HostShare& share : job.generation.shares) {
    if (share.machine == machine) return &share;
  }
  return nullptr;
}

}  // namespace weft
