#include "launcher/shim/shim_message.h"

#include <cstdio>

namespace weft {

std::string ShimText(const ShimMessage& message) {
  const bool ended = message.kind == ShimMessage::Kind::kEnded;
  std::string text = std::string("weft-shim 1 ") + (ended ? "ended " : "started ") +
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
  ShimMessage message;
  long long generation = 0;
  long long pid = 0;
  int used = 0;
  if (std::sscanf(line.c_str(), "weft-shim 1 started %lld %d %lld%n", &generation, &message.rank,
                  &pid, &used) == 3) {
    message.kind = ShimMessage::Kind::kStarted;
  } else if (std::sscanf(line.c_str(), "weft-shim 1 ended %lld %d %lld %d%n", &generation,
                         &message.rank, &pid, &message.wait_status, &used) == 4) {
    message.kind = ShimMessage::Kind::kEnded;
    if (end != std::string_view::npos) message.last_out = std::string(text.substr(end + 1));
  }
  if (used == 0 || static_cast<size_t>(used) != line.size()) return std::nullopt;
  if (generation < 1 || message.rank < 0 || pid < 0) return std::nullopt;
  message.generation = generation;
  message.pid = pid;
  return message;
}

}  // namespace weft
