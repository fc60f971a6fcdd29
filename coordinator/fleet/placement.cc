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

std::vector<std::pair<int64_t, const FleetJob*>> InOrder(const Fleet& fleet) {
  std::vector<std::pair<int64_t, const FleetJob*>> queue;
  for (const int64_t number : fleet.live) {
    const FleetJob& job = fleet.jobs.at(number);
    if (job.phase == FleetPhase::kQueued) queue.emplace_back(number, &job);
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

Decision LookAt(const Fleet& fleet, int64_t now_ms) {
  Decision decision;
  Free free = FreeSlots(fleet, now_ms);
  const Free all = SlotsBut({}, fleet, now_ms);  // as if no job had any
  for (const auto& [number, job] : InOrder(fleet)) {
    const FleetRequest& asked = job->request;
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

bool IsToEnd(const FleetJob& job) {
  return job.stop != FleetStop::kNone || job.after_save != AfterSave::kIsOver || job.moves;
}

bool IsToEndNow(const FleetJob& job, int64_t now_ms) {
  const bool is_late = job.stop_now_ms > 0 && job.stop_now_ms <= now_ms;
  return job.stop == FleetStop::kNow || job.moves || is_late;
}

// Its Driver goes on with the hosts that are left, if they are enough; who is away may come back.
bool HasLostItsHosts(const Fleet& fleet, const FleetJob& job, int64_t now_ms) {
  if (job.moves || job.shares.empty()) return false;
  int64_t left = 0;
  for (const FleetShare& share : job.shares) {
    const FleetHost& host = fleet.hosts.at(share.machine);
    if (host.present || now_ms - host.gone_ms < kAwaitGoneMs) ++left;
  }
  return left < job.request.least_nodes;
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
  return host.present && !host.drained && !host.lacks_tokens && host.left_out_until_ms <= now_ms;
}

FleetDuties Decide(const Fleet& fleet, int64_t now_ms) {
  FleetDuties duties;
  duties.place = LookAt(fleet, now_ms).place;
  for (const int64_t number : fleet.live) {
    const FleetJob& job = fleet.jobs.at(number);
    if (job.phase != FleetPhase::kPlaced) continue;
    if (IsToEnd(job)) duties.end.push_back({number, IsToEndNow(job, now_ms)});
    if (HasLostItsHosts(fleet, job, now_ms)) duties.move.push_back({number});
  }
  return duties;
}

std::vector<QueuedJob> Queue(const Fleet& fleet, int64_t now_ms) {
  return LookAt(fleet, now_ms).wait;
}

}  // namespace weft
