// AcceptLoop: a thread that accepts what connects to a socket, until its end. Where no descriptor
// is left, it waits: those that are open stay served.
#pragma once
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"

namespace weft {

class AcceptLoop final {
 public:
  // Owns the non-blocking descriptor.
  using Handler = std::function<void(int connection)>;
  using Ticker = std::function<void()>;
  // Accepts at `listener`, a socket that listens and does not block, and which it closes at its
  // end, also where it does not start. Both functions are called on its thread. Unavailable if the
  // process may have no more descriptors.
  static absl::StatusOr<std::unique_ptr<AcceptLoop>> Start(int listener, Handler on_connection,
                                                           Ticker each_second = {});
  // Joins the thread.
  ~AcceptLoop();
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

 private:
  AcceptLoop(int listener, int stop) : listener_(listener), stop_(stop) {}
  void Run(const Handler& on_connection, const Ticker& each_second);

  const int listener_;
  const int stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace weft
