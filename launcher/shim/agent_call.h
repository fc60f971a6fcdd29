// A shim's line to this host's agent: a packet each way of saying something, and a hang-up when
// either is gone.
#pragma once
#include <string>

#include "launcher/shim/shim_message.h"

namespace weft {

inline constexpr int kShimFailed = 1;  // exit codes
inline constexpr int kShimUsage = 2;

// A connection to the agent, if the one who listens at `path` is this user; else -1 and errno.
int CallAgent(const std::string& path);

// Sends `message`, with `descriptor` beside it unless it is -1. False: the agent is gone, which
// shows as a hang-up too.
bool TellAgent(int agent, const ShimMessage& message, int descriptor);

// Says `what` on stderr and returns `code`.
int ShimFailed(const std::string& what, int code);

}  // namespace weft
