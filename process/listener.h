// Listener: a unix socket 0600 for processes of this user alone, or 0666 where others are let in,
// too; whoever else connects is cut off before a byte is read (SO_PEERCRED). Hands each accepted
// connection on as a descriptor.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "process/accept_loop.h"

namespace weft {

class Listener final {
 public:
  using Handler = std::function<void(int fd, uid_t uid)>;
  // `on_connection` is called on the listener's thread and owns the non-blocking descriptor.
  // `admits` says which other users are let in; none: nobody is. InvalidArgument: the path is not
  // absolute. FailedPrecondition: somebody listens there.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const std::string& path,
                                                         Handler on_connection,
                                                         std::function<bool(uid_t)> admits = {});
  // Joins the thread and removes the socket, if it is still the one it made.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  Listener(std::string path, std::function<bool(uid_t)> admits)
      : path_(std::move(path)), admits_(std::move(admits)) {}
  absl::Status Bind();
  void Take(int connection, const Handler& on_connection) const;
  bool IsLetIn(uid_t uid) const;

  const std::string path_;
  const std::function<bool(uid_t)> admits_;
  int socket_ = -1;  // until the loop has it
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::unique_ptr<AcceptLoop> loop_;
};

}  // namespace weft
