// ShimDoor is where shims tell the agent of their workers, and of the daemons that mpirun wants: a
// unix socket of packets, 0600, for this user alone (SO_PEERCRED). It holds a pidfd of every worker
// that a shim has forked, as long as the shim is there. Never blocks; one thread.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/process_user.h"
#include "launcher/shim/shim_message.h"

namespace weft {

class ShimDoor {
 public:
  // Listens at `path`, which must not exist yet. `user`: as whom shims and workers run, where that
  // is another one; whoever hands over a worker of somebody else is cut off.
  static absl::StatusOr<std::unique_ptr<ShimDoor>> Open(
      const std::string& path, std::optional<ProcessUser> user = std::nullopt);
  ~ShimDoor();  // removes the socket
  ShimDoor(const ShimDoor&) = delete;
  ShimDoor& operator=(const ShimDoor&) = delete;

  // Is readable whenever Take has something to do.
  int poll_fd() const { return epoll_.get(); }

  // Returns what shims have said since the last call. A shim that goes before it has told its
  // worker's end counts as a worker that was killed by SIGKILL, which is what its death does to the
  // worker. The pid of who wants a daemon is the kernel's word, and its number is not another's as
  // long as it is connected.
  std::vector<ShimMessage> Take();
  // Cuts off the shim that has that pid itself.
  void HangUp(int64_t pid);

  // Sends `signal` to every worker of the generation that has not ended.
  void Signal(int64_t generation, int signal) const;
  // Shims that are connected.
  size_t open_shims() const { return shims_.size(); }

 private:
  struct Shim {
    Descriptor connection;
    int64_t pid = 0;      // the shim's own
    Descriptor worker;    // pidfd
    ShimMessage started;  // generation 0: has said nothing yet
    bool doomed = false;
    bool ended = false;
  };

  ShimDoor(std::string path, std::optional<ProcessUser> user)
      : path_(std::move(path)), user_(std::move(user)), packet_(kMostShimBytes, '\0') {}
  const ProcessUser* user() const { return user_ ? &*user_ : nullptr; }
  absl::Status Listen();
  void Accept();
  // False once the shim is gone.
  bool Read(Shim& shim, std::vector<ShimMessage>& said);

  const std::string path_;
  const std::optional<ProcessUser> user_;
  Descriptor listener_;
  Descriptor epoll_;
  std::map<int, Shim> shims_;  // by connection
  std::string packet_;         // room for the longest
};

}  // namespace weft
