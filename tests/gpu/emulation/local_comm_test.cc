// These tests cover what is LocalComm's own: ranks of two processes, which map each other's memory.
#include "worker/backend/cuda/comm/local_comm.h"

#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/backend/all_ranks.h"
#include "worker/backend/cuda/comm/local_block.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

// A call ends by then, and whatever waits for the other rank: nothing that holds comes near it.
constexpr int64_t kDeadlineMs = 20000;

std::unique_ptr<Comm> Open(int rank, const std::string& name) {
  const CommOptions options = {.init_timeout_ms = kDeadlineMs,
                               .timeout_ms = kDeadlineMs,
                               .rank = rank,
                               .world_size = 2,
                               .rendezvous = name.c_str()};
  std::unique_ptr<Comm> comm;
  const BackendStatus opened = OpenLocalComm(options, {}, "", &comm);
  EXPECT_TRUE(opened.ok()) << opened.text;
  return comm;
}

// Rank `rank` of two: a sum, and the end after `rest`. Whether the sum is right.
bool AddUpAndPart(int rank, const std::string& name, milliseconds rest) {
  std::unique_ptr<Comm> comm = Open(rank, name);
  if (comm == nullptr) return false;
  std::vector<float> values(1000, static_cast<float>(rank + 1));
  const bool added = comm->AllReduce(World(*comm), ReduceOp::kSum, Row(values)).ok();
  std::this_thread::sleep_for(rest);
  comm.reset();
  return added && values == std::vector<float>(1000, 3.0F);
}

std::string FreshName() {
  static int count = 0;
  return "/weft-local-comm-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

int ExitCodeOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The emulated device ends a process that frees what another one still has mapped.
TEST(LocalCommOfTwoProcesses, KeepsItsMemoryUntilTheOtherHasLetGoOfIt) {
  const std::string name = FreshName();
  const pid_t child = fork();
  if (child == 0) _exit(AddUpAndPart(1, name, milliseconds(200)) ? 0 : 1);
  EXPECT_TRUE(AddUpAndPart(0, name, milliseconds(0)));
  EXPECT_EQ(ExitCodeOf(child), 0);
}

TEST(LocalCommOfTwoProcesses, DoesNotWaitForOneThatHasDied) {
  const std::string name = FreshName();
  const pid_t child = fork();
  if (child == 0) _exit(Open(1, name) != nullptr ? 0 : 1);  // nothing is closed
  std::unique_ptr<Comm> comm = Open(0, name);
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(ExitCodeOf(child), 0);
  const auto begin = std::chrono::steady_clock::now();
  comm.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(kDeadlineMs));
}

// Ranks cannot map each other's memory here, as in a sandbox, or on a part of a device.
class LocalCommWithoutIpc : public testing::Test {
 protected:
  LocalCommWithoutIpc() { setenv("WEFT_EMULATED_IPC", "none", 1); }
  ~LocalCommWithoutIpc() override { unsetenv("WEFT_EMULATED_IPC"); }

  static BackendStatus Opened(int rank, int world_size, const std::string& name) {
    std::unique_ptr<Comm> comm;
    return OpenLocalComm({.init_timeout_ms = kDeadlineMs,
                          .timeout_ms = kDeadlineMs,
                          .rank = rank,
                          .world_size = world_size,
                          .rendezvous = name.c_str()},
                         {}, "", &comm);
  }
};

TEST_F(LocalCommWithoutIpc, ServesARankAlone) {
  const BackendStatus s = Opened(0, 1, FreshName());
  EXPECT_TRUE(s.ok()) << s.text;
}

TEST_F(LocalCommWithoutIpc, ServesThreadsOfOneProcess) {
  const std::string name = FreshName();
  bool other = false;
  std::thread thread([&] { other = AddUpAndPart(1, name, milliseconds(0)); });
  EXPECT_TRUE(AddUpAndPart(0, name, milliseconds(0)));
  thread.join();
  EXPECT_TRUE(other);
}

TEST_F(LocalCommWithoutIpc, NamesTheRankWhoseMemoryAnotherProcessNeeds) {
  const std::string name = FreshName();
  const pid_t child = fork();
  if (child == 0) _exit(Opened(1, 2, name).ok() ? 1 : 0);
  const BackendStatus s = Opened(0, 2, name);
  EXPECT_EQ(s.code, 9);
  EXPECT_NE(std::string(s.text).find("rank 1's device does not let other processes map"),
            std::string::npos)
      << s.text;
  EXPECT_EQ(ExitCodeOf(child), 0);
}

// Rank 1 is of another container, where its process has this one's number: its pointer is not of
// this process.
TEST(LocalComm, TellsProcessesApartThatHaveOneNumber) {
  const std::string name = FreshName();
  std::unique_ptr<LocalBlock> block;
  ASSERT_TRUE(LocalBlock::Open(name, 2, &block).ok());
  LocalRank& other = block->rank(1);
  other.pid = getpid();
  other.process = 1;
  other.share_error = cudaErrorNotSupported;
  other.stage = 2;
  std::unique_ptr<Comm> comm;
  const BackendStatus s = OpenLocalComm(
      {.init_timeout_ms = kDeadlineMs, .world_size = 2, .rendezvous = name.c_str()}, {}, "", &comm);
  block->Unlink();
  EXPECT_EQ(s.code, 9) << s.text;
}

}  // namespace
}  // namespace weft
