#include "coordinator/network_peers.h"

#include <sys/socket.h>

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "process/log.h"
#include "process/tcp_socket.h"

namespace weft {
namespace {

constexpr int64_t kFailuresToldEveryMs = 10000;

// gRPC's name of the peer, "ipv6:[fd00::1]:4711", whose brackets its versions spell differently.
std::string PeerText(const std::string& peer) {
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
}

std::string PeerTextOf(const std::string& address, int port) {
  return absl::StrContains(address, ':') ? absl::StrCat("ipv6:[", address, "]:", port)
                                         : absl::StrCat("ipv4:", address, ":", port);
}

}  // namespace

bool NetworkPeers::Accept(int connection, int64_t now_ms) {
  const std::string address = PeerAddress(connection);
  const std::string peer = PeerTextOf(address, PeerPort(connection));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!silent_.Take(address, connection, now_ms)) return false;
  const auto [before, is_new] = unproven_.try_emplace(peer);
  if (!is_new) TellFailed(peer, address, now_ms);  // its port is another connection's by now
  before->second = {connection, SocketOf(connection), address};
  return true;
}

void NetworkPeers::Called(const std::string& peer, const std::string& name, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unproven_.empty()) return;
  const auto found = unproven_.find(PeerText(peer));
  if (found == unproven_.end()) return;
  const Silent shown = std::move(found->second);
  unproven_.erase(found);
  silent_.Forget(shown.address, shown.connection);
  if (SocketOf(shown.connection) != shown.socket) return;  // it has ended meanwhile
  const bool is_welcome =
      known_.Count(absl::StrCat("the certificate of ", name), shown.connection, now_ms);
  if (!is_welcome) shutdown(shown.connection, SHUT_RDWR);  // gRPC closes it
}

void NetworkPeers::LookForFailed(int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto each = unproven_.begin(); each != unproven_.end();) {
    if (SocketOf(each->second.connection) == each->second.socket) {
      ++each;
      continue;
    }
    TellFailed(each->first, each->second.address, now_ms);
    each = unproven_.erase(each);
  }
  for (auto each = failures_.begin(); each != failures_.end();) {
    const auto& [address, failures] = *each;
    const bool is_old = now_ms - failures.told_ms >= kFailuresToldEveryMs;
    if (is_old && failures.untold > 0) {
      LogWarning(absl::StrCat("TLS failed: ", failures.untold, " more connections of ", address));
    }
    each = is_old ? failures_.erase(each) : std::next(each);
  }
}

void NetworkPeers::TellFailed(const std::string& peer, const std::string& address, int64_t now_ms) {
  const auto [failures, is_new] = failures_.try_emplace(address, Failures{now_ms, 0});
  if (!is_new) {
    ++failures->second.untold;
    return;
  }
  LogWarning(absl::StrCat("TLS failed: the connection of ", peer.substr(peer.find(':') + 1),
                          " has ended before it showed a certificate that is good here"));
}

}  // namespace weft
