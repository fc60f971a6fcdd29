// The tests of collectives (comm_test.cc) on LocalComm: ranks as threads, staging buffers in this
// process's memory.
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/cuda/comm/local_comm.h"

namespace weft {

// max_message_bytes is of the CPU's transport; messages here are cut by the staging buffer.
std::vector<std::unique_ptr<Comm>> MakeThreadComms(int world, const ThreadCommOptions& options) {
  static std::atomic<int> count = 0;
  const std::string name =
      "/weft-comm-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(world));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      CommOptions own = options.comm;
      own.init_timeout_ms = 20000;
      own.rank = rank;
      own.world_size = world;
      own.rendezvous = name.c_str();
      const BackendStatus status = OpenLocalComm(own, {}, "", &comms[static_cast<size_t>(rank)]);
      EXPECT_TRUE(status.ok()) << status.text;
    });
  }
  threads.clear();  // joins
  return comms;
}

bool ThreadCommsSeeTheirPeers() {
  return true;
}

}  // namespace weft
