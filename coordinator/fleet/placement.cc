// The fleet's queue: which job goes where, and what those that go nowhere wait for.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/fleet/fleet.h"

namespace weft {
namespace {

// The slots that nobody has, by machine, of hosts where jobs may be placed.
using Free = std::map<std::string, std::vector<int>>;

// Returns the slots of usable hosts, without the `used` ones.
Free SlotsBut(const std::map<std::string, std::set<int>>& used, const Fleet& fleet,
              int64_t now_ms) {
  Free free;
  for (const auto& [machine, host] : fleet.hosts) {
    if (!IsUsable(host, now_ms)) continue;
    const auto taken = used.find(machine);
    std::vector<int>& slots = free[machine];
    for (int slot = 0; slot < host.slots; ++slot) {
      if (taken == used.end() || taken->second.count(slot) == 0) slots.push_back(slot);
    }
  }
  return free;
}

Free FreeSlots(const Fleet& fleet, int64_t now_ms) {
  std::map<std::string, std::set<int>> used;
  for (const int64_t number : fleet.live) {
    for (const FleetShare& share : fleet.jobs.at(number).shares) {
      used[share.machine].insert(share.slots.begin(), share.slots.end());
    }
  }
  return SlotsBut(used, fleet, now_ms);
}

// The queue, and with it placed jobs whose new size waits for hosts.
std::vector<std::pair<int64_t, const FleetJob*>> InOrder(const Fleet& fleet) {
  std::vector<std::pair<int64_t, const FleetJob*>> queue;
  for (const int64_t number : fleet.live) {
    const FleetJob& job = fleet.jobs.at(number);
    const bool grows = job.phase == FleetPhase::kPlaced && job.resized;
    if (job.phase == FleetPhase::kQueued || grows) queue.emplace_back(number, &job);
  }
  std::sort(queue.begin(), queue.end(), [](const auto& a, const auto& b) {
    const int one = a.second->request.priority;
    const int other = b.second->request.priority;
    return one != other ? one > other : a.second->place < b.second->place;
  });
  return queue;
}

// Machines that are free for the job as a whole, with slots enough.
std::vector<std::string> WholeHosts(const Fleet& fleet, const Free& free,
                                    const FleetRequest& asked) {
  std::vector<std::string> machines;
  for (const auto& [machine, slots] : free) {
    const FleetHost& host = fleet.hosts.at(machine);
    const bool whole = std::ssize(slots) == host.slots && host.slots >= asked.slots_per_node;
    if (whole && Admits(host, asked)) machines.push_back(machine);
  }
  return machines;
}

// The host with the fewest free slots that will do keeps the others whole; of equal ones the first.
std::optional<std::vector<FleetShare>> PartOfOneHost(const Fleet& fleet, const Free& free,
                                                     const FleetRequest& asked) {
  const std::string* best = nullptr;
  for (const auto& [machine, slots] : free) {
    if (!Admits(fleet.hosts.at(machine), asked)) continue;
    if (std::ssize(slots) < asked.slots_per_node) continue;
    if (best == nullptr || slots.size() < free.at(*best).size()) best = &machine;
  }
  if (best == nullptr) return std::nullopt;
  const std::vector<int>& slots = free.at(*best);
  return std::vector<FleetShare>{{*best, {slots.begin(), slots.begin() + asked.slots_per_node}}};
}

// No place: there is not room enough.
std::optional<std::vector<FleetShare>> FindPlace(const Fleet& fleet, const Free& free,
                                                 const FleetRequest& asked) {
  if (asked.brings_hosts) return std::vector<FleetShare>();
  if (asked.nodes == 1) return PartOfOneHost(fleet, free, asked);
  std::vector<std::string> machines = WholeHosts(fleet, free, asked);
  if (std::ssize(machines) < asked.least_nodes) return std::nullopt;
  machines.resize(std::min(machines.size(), static_cast<size_t>(asked.nodes)));
  std::vector<FleetShare> shares;
  for (const std::string& machine : machines) shares.push_back({machine, free.at(machine)});
  return shares;
}

std::string SizeText(const FleetRequest& asked) {
  const std::string slots =
      asked.slots_per_node == 1 ? "1 slot" : absl::StrCat(asked.slots_per_node, " slots");
  if (asked.nodes == 1) return absl::StrCat("1 host with ", slots, " free");
  const std::string nodes = asked.least_nodes == asked.nodes
                                ? absl::StrCat(asked.nodes)
                                : absl::StrCat(asked.least_nodes, " to ", asked.nodes);
  return absl::StrCat(nodes, " whole hosts of ", slots);
}

struct Decision {
  std::vector<PlaceJob> place;
  std::set<int64_t> resize;  // placed jobs for whose new size there are hosts
  std::vector<QueuedJob> wait;
};

// Takes from `free` what the job gets.
void Take(const std::vector<FleetShare>& shares, Free& free) {
  for (const FleetShare& share : shares) {
    std::erase_if(free[share.machine], [&](int slot) {
      return std::binary_search(share.slots.begin(), share.slots.end(), slot);
    });
  }
}

// Whoever waits keeps all hosts that it may use from those behind it.
void KeepFromOthers(const Fleet& fleet, const FleetRequest& asked, Free& free) {
  std::erase_if(free, [&](const auto& each) { return Admits(fleet.hosts.at(each.first), asked); });
}

// `free` with what the job has itself, as far as it may be used again.
Free WithOwn(const Fleet& fleet, const FleetJob& job, Free free, int64_t now_ms) {
  for (const FleetShare& share : job.shares) {
    if (!IsUsable(fleet.hosts.at(share.machine), now_ms)) continue;
    std::vector<int>& slots = free[share.machine];
    slots.insert(slots.end(), share.slots.begin(), share.slots.end());
    std::sort(slots.begin(), slots.end());
  }
  return free;
}

// Whether the job comes to what was asked by going to so many hosts now: it is not saved and
// started again to have what it has.
bool IsWorthIt(const FleetJob& job, int64_t hosts) {
  const auto has = std::ssize(job.shares);
  const bool is_outside = has < job.request.least_nodes || has > job.request.nodes;
  return is_outside || hosts > has || job.request.nodes <= has;
}

// A resize in its turn: the hosts that it needs are kept for it, as for those that wait.
void LookAtResize(const Fleet& fleet, int64_t number, int64_t now_ms, const Free& all, Free& free,
                  Decision& decision) {
  const FleetJob& job = fleet.jobs.at(number);
  const auto place = FindPlace(fleet, WithOwn(fleet, job, free, now_ms), job.request);
  if (place && IsWorthIt(job, std::ssize(*place))) {
    Take(*place, free);
    decision.resize.insert(number);
  } else if (FindPlace(fleet, all, job.request)) {
    KeepFromOthers(fleet, job.request, free);
  }
}

Decision LookAt(const Fleet& fleet, int64_t now_ms) {
  Decision decision;
  Free free = FreeSlots(fleet, now_ms);
  const Free all = SlotsBut({}, fleet, now_ms);  // as if no job had any
  for (const auto& [number, job] : InOrder(fleet)) {
    const FleetRequest& asked = job->request;
    if (job->phase == FleetPhase::kPlaced) {
      LookAtResize(fleet, number, now_ms, all, free, decision);
      continue;
    }
    if (auto place = FindPlace(fleet, free, asked)) {
      Take(*place, free);
      decision.place.push_back({number, *std::move(place)});
    } else if (FindPlace(fleet, all, asked)) {
      decision.wait.push_back({number, absl::StrCat("waits for ", SizeText(asked))});
      KeepFromOthers(fleet, asked, free);
    } else {
      decision.wait.push_back(
          {number, absl::StrCat("needs ", SizeText(asked), ", which the hosts that are there for ",
                                asked.owner, " do not have; it waits for more of them")});
    }
  }
  return decision;
}

// Snapshots of older versions do not know.
int LeastAsPlaced(const FleetJob& job) {
  return job.placed_least_nodes > 0 ? job.placed_least_nodes : job.request.least_nodes;
}

// A person wants a host of it for something else, or hosts leave and too few would stay. Where
// enough do its Driver goes on with these.
bool IsAskedAway(const Fleet& fleet, const FleetJob& job) {
  int64_t stay = 0;
  for (const FleetShare& share : job.shares) {
    const FleetHost& host = fleet.hosts.at(share.machine);
    if (host.drained && host.moves) return true;
    if (!host.leaves) ++stay;
  }
  const auto has = std::ssize(job.shares);
  return stay < has && stay < LeastAsPlaced(job);
}

bool IsToEnd(const FleetJob& job) {
  return job.stop != FleetStop::kNone || job.after_save != AfterSave::kIsOver || job.moves;
}

bool IsToEndNow(const FleetJob& job, int64_t now_ms) {
  const bool is_late = job.stop_now_ms > 0 && job.stop_now_ms <= now_ms;
  return job.stop == FleetStop::kNow || job.moves || is_late;
}

// Its Driver goes on with the hosts that are left, if they are enough; who is away may come back.
// Hosts that it is to have by a resize are not missed: it does not have them yet.
bool HasLostItsHosts(const Fleet& fleet, const FleetJob& job, int64_t now_ms) {
  if (job.moves || job.shares.empty()) return false;
  int64_t left = 0;
  for (const FleetShare& share : job.shares) {
    const FleetHost& host = fleet.hosts.at(share.machine);
    if (host.present || now_ms - host.gone_ms < kAwaitGoneMs) ++left;
  }
  return left < std::min<int64_t>(LeastAsPlaced(job), std::ssize(job.shares));
}

}  // namespace

bool IsOwner(const FleetHost& host, const FleetRequest& request) {
  if (host.owner_uid >= 0 && host.owner_uid == request.owner_uid) return true;
  // Over the network a certificate of weftd's own authority says the name.
  return request.owner_uid < 0 && !request.owner.empty() && request.owner == host.owner;
}

int64_t RanksUid(const FleetHost& host, const FleetRequest& request) {
  const bool is_submitter =
      host.starts_as_submitter && host.owner_uid == 0 && request.owner_uid > 0;
  return is_submitter ? request.owner_uid : host.owner_uid;
}

bool Admits(const FleetHost& host, const FleetRequest& request) {
  if (IsOwner(host, request)) return true;
  return std::any_of(host.allows.begin(), host.allows.end(), [&](const std::string& user) {
    return user == "*" || (!user.empty() && user == request.owner);
  });
}

bool IsUsable(const FleetHost& host, int64_t now_ms) {
  return host.present && !host.leaves && !host.drained && !host.lacks_tokens &&
         host.left_out_until_ms <= now_ms;
}

// Hosts that are gone are given up one after the other: the time at which too few are left.
int64_t AwaitsGoneUntilMs(const Fleet& fleet, const FleetJob& job, int64_t now_ms) {
  if (job.phase != FleetPhase::kPlaced || job.moves) return 0;
  std::vector<int64_t> gone;
  for (const FleetShare& share : job.shares) {
    const FleetHost& host = fleet.hosts.at(share.machine);
    if (!host.present) gone.push_back(host.gone_ms + kAwaitGoneMs);
  }
  const auto has = std::ssize(job.shares);
  const int64_t spare = has - std::min<int64_t>(LeastAsPlaced(job), has);
  if (std::ssize(gone) <= spare) return 0;
  std::sort(gone.begin(), gone.end());
  const int64_t until_ms = gone[static_cast<size_t>(spare)];
  return until_ms > now_ms ? until_ms : 0;
}

FleetDuties Decide(const Fleet& fleet, int64_t now_ms) {
  FleetDuties duties;
  Decision decision = LookAt(fleet, now_ms);
  duties.place = std::move(decision.place);
  for (const int64_t number : fleet.live) {
    const FleetJob& job = fleet.jobs.at(number);
    if (job.phase != FleetPhase::kPlaced) continue;
    const bool is_to_save = decision.resize.count(number) > 0 || IsAskedAway(fleet, job);
    if (IsToEnd(job) || is_to_save) duties.end.push_back({number, IsToEndNow(job, now_ms)});
    if (HasLostItsHosts(fleet, job, now_ms)) duties.move.push_back({number});
  }
  return duties;
}

std::vector<QueuedJob> Queue(const Fleet& fleet, int64_t now_ms) {
  return LookAt(fleet, now_ms).wait;
}

}  // namespace weft
