#include "coordinator/check_round.h"

#include <algorithm>
#include <utility>

namespace weft {

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
  for (auto& [machine, part] : parts_) {
    if (part.done || !part.opened || std::exchange(part.told_peers, true)) continue;
    turns.push_back({machine, PeersOf(machine)});
  }
  std::map<std::string, int> dialled_by;
  for (const Turn& turn : turns) {
    for (const std::string& peer : turn.peers) ++dialled_by[peer];
  }
  for (Turn& turn : turns) turn.dialled_by = dialled_by[turn.machine];
  return turns;
}

std::vector<std::string> CheckRound::PeersOf(const std::string& machine) const {
  std::vector<std::string> peers;
  const auto own = parts_.find(machine);
  if (own == parts_.end()) return peers;
  // In a ring, from the one after this one on.
  auto each = own;
  while (peers.size() < kMostPeers) {
    if (++each == parts_.end()) each = parts_.begin();
    if (each == own) break;
    const Part& part = each->second;
    const bool is_new_pair = !part.pairs_only || !own->second.pairs_only;
    if (is_new_pair && part.opened && !part.address.empty()) peers.push_back(each->first);
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
