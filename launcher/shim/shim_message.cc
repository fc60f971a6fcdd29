#include "launcher/shim/shim_message.h"

#include <cstdio>

namespace weft {
namespace {

std::string DaemonText(const ShimMessage& message) {
  std::string text = "weft-shim 3 daemon " + std::to_string(message.generation) + " " +
                     std::to_string(message.pid) + " " + message.host + "\n";
  for (const std::string& arg : message.args) text += arg + '\0';
  return text;
}

// False unless each has its zero byte.
bool TakeArgs(std::string_view text, std::vector<std::string>& args) {
  while (!text.empty()) {
    const size_t end = text.find('\0');
    if (end == std::string_view::npos) return false;
    args.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace

std::string ShimText(const ShimMessage& message) {
  if (message.kind == ShimMessage::Kind::kDaemonWanted) return DaemonText(message);
  const bool ended = message.kind == ShimMessage::Kind::kEnded;
  const bool doomed = message.kind == ShimMessage::Kind::kDoomed;
  std::string text = std::string("weft-shim 3 ") +
                     (ended    ? "ended "
                      : doomed ? "doomed "
                               : "started ") +
                     std::to_string(message.generation) + " " + std::to_string(message.rank) + " " +
                     std::to_string(message.pid);
  if (!ended) return text;
  const std::string& out = message.last_out;
  const size_t from = out.size() > kMostLastBytes ? out.size() - kMostLastBytes : 0;
  return text + " " + std::to_string(message.wait_status) + "\n" + out.substr(from);
}

std::optional<ShimMessage> ParseShimText(std::string_view text) {
  const size_t end = text.find('\n');
  const std::string line(text.substr(0, end));
  const std::string_view body = end == std::string_view::npos ? "" : text.substr(end + 1);
  ShimMessage message;
  long long generation = 0;
  long long pid = 0;
  char host[64] = {};
  int used = 0;
  if (std::sscanf(line.c_str(), "weft-shim 3 started %lld %d %lld%n", &generation, &message.rank,
                  &pid, &used) == 3) {
    message.kind = ShimMessage::Kind::kStarted;
  } else if (std::sscanf(line.c_str(), "weft-shim 3 doomed %lld %d %lld%n", &generation,
                         &message.rank, &pid, &used) == 3) {
    message.kind = ShimMessage::Kind::kDoomed;
  } else if (std::sscanf(line.c_str(), "weft-shim 3 ended %lld %d %lld %d%n", &generation,
                         &message.rank, &pid, &message.wait_status, &used) == 4) {
    message.kind = ShimMessage::Kind::kEnded;
    message.last_out = std::string(body);
  } else if (std::sscanf(line.c_str(), "weft-shim 3 daemon %lld %lld %63s%n", &generation, &pid,
                         host, &used) == 3) {
    message.kind = ShimMessage::Kind::kDaemonWanted;
    message.host = host;
    if (!TakeArgs(body, message.args)) return std::nullopt;
  }
  if (used == 0 || static_cast<size_t>(used) != line.size()) return std::nullopt;
  if (generation < 1 || message.rank < 0 || pid < 0) return std::nullopt;
  message.generation = generation;
  message.pid = pid;
  return message;
}

}  // namespace weft
