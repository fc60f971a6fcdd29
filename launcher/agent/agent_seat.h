// AgentSeat is the place of a run's agent on this host: one process at a time sits there, and it
// alone makes and removes the run's temporary files here. Whoever comes while it is taken, because
// its starter has lost the agent before it, waits for that one to leave, and ends it if it does
// not. Belongs to one thread.
//
// The seat is a lock of the kernel's on a file in the run's own folder, so the kernel says who
// holds it, and gives it back whatever the holder dies of.
#pragma once
#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "launcher/machine/descriptor.h"

namespace weft {

class AgentSeat {
 public:
  // Waits `patience_ms` for the one who sits there, then kills it. FailedPrecondition if the folder
  // is not this user's alone; Unavailable, naming the process, if that one cannot be ended.
  static absl::StatusOr<AgentSeat> Take(const std::string& run_id, const std::string& host,
                                        int patience_ms);
  // Whether somebody sits there.
  static bool IsTaken(const std::string& run_id, const std::string& host);
  // Removes what an agent that was killed has left there, where nobody is to come after it. Returns
  // whether nothing is left: whoever sits there keeps what it has.
  static bool Clear(const std::string& run_id, const std::string& host);
  AgentSeat(AgentSeat&& other) noexcept;
  AgentSeat& operator=(AgentSeat&&) = delete;
  ~AgentSeat();  // removes the run's temporary files of this host, the seat last

  // A folder of this user alone, for sockets: its path is short.
  const std::string& folder() const { return folder_; }

 private:
  AgentSeat(std::string run_id, std::string host);
  // Opens the file that is there under its name, and locks it if nobody else has. False: somebody
  // has it, or it is just being removed.
  absl::StatusOr<bool> TryTake();
  // Who has it, as the kernel knows it in this process's namespace; 0: nobody, or it is not seen.
  pid_t Holder() const;
  void RemoveFiles() const;

  std::string run_id_;
  std::string host_;
  std::string folder_;
  Descriptor lock_;
  bool taken_ = false;
};

}  // namespace weft
