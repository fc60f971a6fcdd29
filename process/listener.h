// Listener: a unix socket 0600 for processes of this user alone; whoever else connects is cut off
// before a byte is read (SO_PEERCRED). Hands each accepted connection on as a descriptor.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace weft {

class Listener final {
 public:
  // `on_connection` is called on the listener's thread and owns the non-blocking descriptor.
  // InvalidArgument: the path is not absolute. FailedPrecondition: somebody listens there.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const std::string& path,
                                                         std::function<void(int fd)> on_connection);
  // Joins the thread and removes the socket, if it is still the one it made.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  explicit Listener(std::string path) : path_(std::move(path)) {}
  absl::Status Bind();
  void Accept(const std::function<void(int fd)>& on_connection);

  const std::string path_;
  int socket_ = -1;
  int stop_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::thread thread_;
};

}  // namespace weft
