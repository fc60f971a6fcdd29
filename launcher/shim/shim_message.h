// A shim tells its agent these messages over a unix socket of packets (SOCK_SEQPACKET), a message
// each: first kStarted, with a pidfd of the worker beside it (SCM_RIGHTS), kDoomed if the starter
// announces the end, then kEnded; or, where it stands for mpirun's remote shell, kDaemonWanted
// alone. Version 3:
//   "weft-shim 3 started <generation> <rank> <pid>"
//   "weft-shim 3 doomed <generation> <rank> <pid>"
//   "weft-shim 3 ended <generation> <rank> <pid> <wait status>\n<the end of the worker's output>"
//   "weft-shim 3 daemon <generation> <pid> <host>\n" and each argument with a zero byte behind it
// Pure. The shim and the agent are of one build, so another version is refused, not read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct ShimMessage {
  enum class Kind { kStarted, kDoomed, kEnded, kDaemonWanted };
  Kind kind = Kind::kStarted;
  int64_t generation = 0;
  int rank = 0;
  // The worker's; 0 of kEnded: it could not be forked; of kDaemonWanted the shim's own.
  int64_t pid = 0;
  int wait_status = 0;            // of kEnded: as wait(2) says
  std::string last_out;           // of kEnded: the end of the worker's output, <= kMostLastBytes
  bool shim_lost = false;         // of kEnded, in no text: the shim went before it had told this
  bool was_doomed = false;        // of kEnded, in no text: kDoomed came before it
  std::string host;               // of kDaemonWanted: in mpirun's file of hosts
  std::vector<std::string> args;  // of kDaemonWanted: after the program's name
};

inline constexpr size_t kMostLastBytes = 4096;
// A whole message is no longer. mpirun's command for a daemon takes 1.5 KB, and more with many
// hosts.
inline constexpr size_t kMostShimBytes = 65536;

std::string ShimText(const ShimMessage& message);
// Nothing if `text` is no message of this version.
std::optional<ShimMessage> ParseShimText(std::string_view text);

}  // namespace weft
