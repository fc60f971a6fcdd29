// Stacks of ranks that hang, for people: taken before anything is killed.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/process_user.h"
#include "proto/agent.pb.h"

namespace weft {

// The stacks of all threads of these processes (by rank), by eu-stack where it is there and may
// look at them, and what the kernel says they are in; all within `limit_ms`. Blocks.
std::string StacksOf(const std::map<int, int64_t>& processes, int64_t limit_ms,
                     const std::optional<ProcessUser>& user = std::nullopt);

// A file of this user alone, and of those by name who are let into its folder (folder_users.h);
// false if it cannot be written. May block as long as the disk does.
bool WritePrivately(const std::string& path, const std::string& text);

// Takes stacks on threads of its own: neither a tool nor a disk holds up the agent.
class StackTaker {
 public:
  explicit StackTaker(int wake_fd);
  // Takes them, says so, and then writes them to `path`: the disk may be why a rank hangs.
  // `user`: as whom they run and the file is written, where that is not the agent's.
  void Take(const proto::TakeStacks& order, std::map<int, int64_t> processes, std::string path,
            std::optional<ProcessUser> user);
  // Returns those that have been taken since the last call.
  std::vector<proto::StacksTaken> Taken();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // outlives the agent's thread where a disk hangs
};

}  // namespace weft
