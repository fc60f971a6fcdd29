// For tests of collectives whose ranks are threads (thread_comm.h): what all ranks do at once.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "worker/backend/comm.h"

namespace weft {

using Comms = std::vector<std::unique_ptr<Comm>>;

// Runs `body` once per rank, each on a thread of its own.
inline void OnAllRanks(const Comms& comms, const std::function<void(Comm&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& comm : comms) threads.emplace_back([&body, &comm] { body(*comm); });
  for (std::thread& thread : threads) thread.join();
}

// The middle one of five tries, for what is promised within a time. Whoever waits looks once
// a millisecond, and then needs a core, which a busy machine may not have for a while: the middle
// try tells the one from the other wherever a thread that wakes up has a core soon more often than
// not.
inline std::chrono::milliseconds MiddleOfFive(
    const std::function<std::chrono::steady_clock::duration()>& once) {
  std::array<std::chrono::steady_clock::duration, 5> tries;
  for (auto& took : tries) took = once();
  std::sort(tries.begin(), tries.end());
  return std::chrono::duration_cast<std::chrono::milliseconds>(tries[2]);
}

// A group of all ranks. Collective.
inline int World(Comm& comm, GroupUse use = GroupUse::kStarted) {
  std::vector<int> ranks(static_cast<size_t>(comm.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  int group = -1;
  EXPECT_TRUE(comm.NewGroup(use, ranks.data(), comm.world_size(), &group).ok());
  return group;
}

// Values whose sum depends on the order in which they are added.
inline float Value(int rank, int64_t index) {
  return std::sin(static_cast<float>(index * 7 + rank * 31)) *
         std::ldexp(1.0F, (rank * 5 + static_cast<int>(index % 11)) % 17);
}

inline std::vector<float> Values(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = Value(rank, i);
  return values;
}

inline View Row(std::vector<float>& values) {
  return {values.data(), 1, static_cast<int64_t>(values.size())};
}

}  // namespace weft
