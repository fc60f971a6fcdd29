#include "coordinator/open_connections.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int64_t kTellsEveryMs = 10000;

void ForgetClosed(std::vector<std::pair<int, ino_t>>* open) {
  std::erase_if(*open, [](const auto& each) { return SocketOf(each.first) != each.second; });
}

}  // namespace

ino_t SocketOf(int descriptor) {
  struct stat entry = {};
  return fstat(descriptor, &entry) == 0 && S_ISSOCK(entry.st_mode) ? entry.st_ino : 0;
}

bool OpenConnections::Take(const std::string& name, int connection, int64_t now_ms) {
  if (Count(name, connection, now_ms)) return true;
  close(connection);
  return false;
}

// Looks at what was closed since only where there seem to be too many.
bool OpenConnections::Count(const std::string& name, int connection, int64_t now_ms) {
  if (peers_.size() >= forget_at_) ForgetWhoIsGone();
  Peer& peer = peers_[name];
  if (peer.open.size() >= most_) ForgetClosed(&peer.open);
  if (peer.open.size() < most_) {
    peer.open.emplace_back(connection, SocketOf(connection));
    return true;
  }
  Refuse(name, now_ms, &peer);
  return false;
}

void OpenConnections::Forget(const std::string& name, int connection) {
  const auto peer = peers_.find(name);
  if (peer == peers_.end()) return;
  std::erase_if(peer->second.open,
                [connection](const auto& each) { return each.first == connection; });
}

void OpenConnections::Refuse(const std::string& name, int64_t now_ms, Peer* peer) const {
  if (peer->told_ms >= 0 && now_ms - peer->told_ms < kTellsEveryMs) return;
  peer->told_ms = now_ms;
  LogWarning(absl::StrCat(name, " has ", most_,
                          " connections open, which is the most; others of it are closed"));
}

// Addresses come and go for ever.
void OpenConnections::ForgetWhoIsGone() {
  for (auto& [name, peer] : peers_) ForgetClosed(&peer.open);
  std::erase_if(peers_, [](const auto& each) { return each.second.open.empty(); });
  forget_at_ = std::max(forget_at_, 2 * peers_.size());
}

}  // namespace weft
