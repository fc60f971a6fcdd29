// A shim tells its agent these messages over a unix socket of packets (SOCK_SEQPACKET), a message
// each: first kStarted, with a pidfd of the worker beside it (SCM_RIGHTS), then kEnded. Version 1:
//   "weft-shim 1 started <generation> <rank> <pid>"
//   "weft-shim 1 ended <generation> <rank> <pid> <wait status>\n<the end of the worker's output>"
// Pure. The shim and the agent are of one build, so another version is refused, not read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

struct ShimMessage {
  enum class Kind { kStarted, kEnded };
  Kind kind = Kind::kStarted;
  int64_t generation = 0;
  int rank = 0;
  int64_t pid = 0;       // the worker's; 0 of kEnded: it could not be forked
  int wait_status = 0;   // of kEnded: as wait(2) says
  std::string last_out;  // of kEnded: the end of what the worker wrote, at most kMostLastBytes
};

inline constexpr size_t kMostLastBytes = 4096;
inline constexpr size_t kMostShimBytes = kMostLastBytes + 128;  // of a whole message

std::string ShimText(const ShimMessage& message);
// Nothing if `text` is no message of this version.
std::optional<ShimMessage> ParseShimText(std::string_view text);

}  // namespace weft
