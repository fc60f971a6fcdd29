// A transport whose answers are late: what a rank makes of them that had no core for longer than a
// call may take.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/worker/backend/all_ranks.h"
#include "worker/backend/cpu/comm/collectives.h"
#include "worker/backend/cpu/comm/transport.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kSoon{20};

// Rank 0 of two, whose first look comes back after the deadline and finds nothing; from the second
// one on all has come, or nothing ever does.
class LateTransport final : public Transport {
 public:
  explicit LateTransport(bool comes) : comes_(comes) {}
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  int64_t max_message_bytes() const override { return 1 << 20; }
  BackendStatus Send(int /*peer*/, int /*tag*/, const void* /*data*/, int64_t /*bytes*/,
                     int* request) override {
    *request = 0;
    return {};
  }
  BackendStatus Receive(int /*peer*/, int /*tag*/, void* /*data*/, int64_t /*bytes*/,
                        int* request) override {
    *request = 0;
    return {};
  }
  BackendStatus Test(int /*request*/, bool* done) override {
    if (looks_++ == 0) std::this_thread::sleep_for(2 * kSoon);
    *done = comes_ && looks_ > 2;  // a barrier sends and receives
    return {};
  }
  void Cancel(int /*request*/) override {}

 private:
  const bool comes_;
  int looks_ = 0;
};

TEST(LateLook, BlamesNobodyForWhatHasComeMeanwhile) {
  for (const bool comes : {true, false}) {
    const std::unique_ptr<Comm> comm =
        MakeCollectives(std::make_unique<LateTransport>(comes), {.timeout_ms = kSoon.count()});
    const BackendStatus status = comm->Barrier(World(*comm));
    EXPECT_EQ(status.ok(), comes) << status.text;
  }
}

}  // namespace
}  // namespace weft
