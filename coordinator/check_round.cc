#include "coordinator/check_round.h"

#include <algorithm>
#include <utility>

namespace weft {

std::vector<int64_t> DialOffsets(int64_t doors, bool has_own) {
  std::vector<int64_t> offsets;
  const int64_t first = has_own ? 1 : 0;
  const bool is_few = doors - first <= static_cast<int64_t>(CheckRound::kMostPeers);
  if (!is_few && first == 0) offsets.push_back(0);
  for (int64_t offset = is_few ? first : 1; offset < doors; offset += is_few ? 1 : offset) {
    offsets.push_back(offset);
  }
  return offsets;
}

void CheckRound::Begin(int64_t number, int64_t now_ms, std::map<std::string, Part> parts) {
  number_ = number;
  since_ms_ = now_ms;
  parts_ = std::move(parts);
}

void CheckRound::Opened(const std::string& machine, const std::string& address, int port) {
  const auto part = parts_.find(machine);
  if (part == parts_.end()) return;
  part->second.opened = true;
  part->second.address = address;
  part->second.port = port;
}

void CheckRound::Done(const std::string& machine) {
  const auto part = parts_.find(machine);
  if (part != parts_.end()) part->second.done = true;
}

std::vector<CheckRound::Turn> CheckRound::ToTell(int64_t now_ms) {
  std::vector<Turn> turns;
  if (!is_on() || !has_peers()) return turns;
  const bool all = std::all_of(parts_.begin(), parts_.end(), [](const auto& each) {
    return each.second.opened || each.second.done;
  });
  if (!all && now_ms - since_ms_ < kOpenMs) return turns;
  std::vector<const std::string*> open;  // by name
  for (const auto& [machine, part] : parts_) {
    if (part.opened && !part.address.empty()) open.push_back(&machine);
  }
  for (auto& [machine, part] : parts_) {
    if (part.done || !part.opened || std::exchange(part.told_peers, true)) continue;
    turns.push_back({machine, PeersOf(machine, open)});
  }
  std::map<std::string, int> dialled_by;
  for (const Turn& turn : turns) {
    for (const std::string& peer : turn.peers) ++dialled_by[peer];
  }
  for (Turn& turn : turns) turn.dialled_by = dialled_by[turn.machine];
  return turns;
}

// `open`: machines with a door, by name.
std::vector<std::string> CheckRound::PeersOf(const std::string& machine,
                                             absl::Span<const std::string* const> open) const {
  std::vector<std::string> peers;
  const auto less = [](const std::string* each, const std::string& name) { return *each < name; };
  const auto own = std::lower_bound(open.begin(), open.end(), machine, less) - open.begin();
  const bool is_open = own < std::ssize(open) && *open[static_cast<size_t>(own)] == machine;
  const bool is_new = !parts_.at(machine).pairs_only;
  for (const int64_t offset : DialOffsets(std::ssize(open), is_open)) {
    const std::string& peer = *open[static_cast<size_t>((own + offset) % std::ssize(open))];
    if (is_new || !parts_.at(peer).pairs_only) peers.push_back(peer);
  }
  return peers;
}

std::vector<std::string> CheckRound::Silent(int64_t now_ms) const {
  std::vector<std::string> silent;
  if (!is_on() || now_ms - since_ms_ < kAnswerMs) return silent;
  for (const auto& [machine, part] : parts_) {
    if (!part.done) silent.push_back(machine);
  }
  return silent;
}

bool CheckRound::IsOver() const {
  return is_on() && std::all_of(parts_.begin(), parts_.end(),
                                [](const auto& each) { return each.second.done; });
}

}  // namespace weft
