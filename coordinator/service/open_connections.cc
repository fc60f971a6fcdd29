#include "coordinator/service/open_connections.h"

#include <sys/stat.h>

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kTellsEveryMs = 10000;

// 0: it is closed. A number that was given away again is another socket, or no socket.
ino_t SocketOf(int descriptor) {
  struct stat entry = {};
  return fstat(descriptor, &entry) == 0 && S_ISSOCK(entry.st_mode) ? entry.st_ino : 0;
}

}  // namespace

// Looks at what was closed since only where there seem to be too many.
bool OpenConnections::Take(int64_t uid, int connection) {
  auto& open = users_[uid].open;
  if (open.size() >= most_) {
    std::erase_if(open, [](const auto& each) { return SocketOf(each.first) != each.second; });
  }
  if (open.size() >= most_) return false;
  open.emplace_back(connection, SocketOf(connection));
  return true;
}

bool OpenConnections::IsNews(int64_t uid, int64_t now_ms) {
  int64_t& told_ms = users_[uid].told_ms;
  if (told_ms >= 0 && now_ms - told_ms < kTellsEveryMs) return false;
  told_ms = now_ms;
  return true;
}

}  // namespace weft
