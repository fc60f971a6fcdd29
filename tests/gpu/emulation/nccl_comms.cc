// The tests of collectives (comm_test.cc) on NcclComm: ranks as threads, over the NCCL of
// fake_nccl.cc.
#include <cuda_runtime.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "gtest/gtest.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/cuda/comm/nccl_comm.h"

namespace weft {
namespace {

// The worker's main asks NCCL for the order of calls, before all else; here nobody does but this.
class AsksForOrder final : public ::testing::Environment {
 public:
  void SetUp() override { setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/1); }
};
const ::testing::Environment* const kAsksForOrder =
    ::testing::AddGlobalTestEnvironment(new AsksForOrder);

// Streams outlive their Comms, which a test owns.
cudaStream_t NewStream() {
  static std::mutex mutex;
  static auto* const streams = new std::vector<std::unique_ptr<cudaStream>>;
  const std::lock_guard<std::mutex> lock(mutex);
  return streams->emplace_back(std::make_unique<cudaStream>()).get();
}

}  // namespace

std::vector<std::unique_ptr<Comm>> MakeThreadComms(int world, const ThreadCommOptions& options) {
  const NcclLibrary* nccl = nullptr;
  const BackendStatus loaded = LoadNccl(&nccl);
  EXPECT_TRUE(loaded.ok()) << loaded.text;
  std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(world));
  if (!loaded.ok()) return comms;
  NcclIds ids;
  for (ncclUniqueId& id : ids.of_use) EXPECT_EQ(nccl->get_unique_id(&id), ncclSuccess);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      CommOptions own = options.comm;
      own.init_timeout_ms = 20000;
      own.rank = rank;
      own.world_size = world;
      own.starts_calls = true;
      own.starts_beside = true;
      const BackendStatus status = OpenNcclComm(own, ids, {.stream = NewStream()}, "a test",
                                                &comms[static_cast<size_t>(rank)]);
      EXPECT_TRUE(status.ok()) << status.text;
    });
  }
  threads.clear();  // joins
  return comms;
}

bool ThreadCommsSeeTheirPeers() {
  return false;
}

}  // namespace weft
