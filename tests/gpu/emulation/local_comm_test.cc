// What is LocalComm's own: ranks of two processes, which map each other's memory.
#include "worker/backend/cuda/local_comm.h"

#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/backend/all_ranks.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Comm> Open(int rank, const std::string& name) {
  const CommOptions options = {.init_timeout_ms = 20000,
                               .timeout_ms = 20000,
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
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace weft
