// These tests show what a CUDA device does with stretches of work, on the emulated one: each is
// queued, then captured, then replayed; what cannot be captured is done all the same.
#include "worker/backend/cuda/runtime/graphs.h"

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Fault = cudaStream::Fault;

constexpr int64_t kElements = 8;

class GraphsTest : public ::testing::Test {
 protected:
  GraphsTest() { Open(true); }

  void Open(bool replays) {
    ASSERT_TRUE(OpenCudaDevice({.replays = replays}, &device_).ok());
    sum_ = {sums_.data(), 1, kElements, DType::kF32};
    one_ = {ones_.data(), 1, kElements, DType::kF32};
  }
  cudaStream& stream() { return *QueueOf(*device_).stream; }

  // Has the device replay `stretch` under `key`.
  void Replay(const std::function<void()>& stretch, int64_t key = 0) {
    const auto call = [](void* context) {
      (*static_cast<const std::function<void()>*>(context))();
    };
    device_->Replay(key, call, const_cast<std::function<void()>*>(&stretch));
  }
  // Five kernels: each of the sums grows by five.
  void AddFive() {
    ++times_queued_;
    for (int i = 0; i < 5; ++i) device_->Add(one_, sum_);
  }

  View sum_of_products() { return {products_.data(), kElements, kElements, DType::kF32}; }

  std::vector<float> products_ = std::vector<float>(kElements * kElements, 0);
  std::vector<float> sums_ = std::vector<float>(kElements, 0);
  std::vector<float> ones_ = std::vector<float>(kElements, 1);
  View sum_, one_;
  int times_queued_ = 0;
  std::unique_ptr<Device> device_;
};

TEST_F(GraphsTest, QueueThenCaptureThenReplay) {
  for (int call = 1; call <= 4; ++call) {
    const int64_t before = stream().host_calls;
    Replay([&] { AddFive(); });
    EXPECT_EQ(sums_, std::vector<float>(kElements, 5.0F * static_cast<float>(call)));
    EXPECT_EQ(stream().host_calls - before, call == 1 ? 5 : 1);
    EXPECT_EQ(times_queued_, call == 1 ? 1 : 2);
  }
  EXPECT_EQ(stream().captures, 1);
  EXPECT_STREQ(device_->DescribeReplays(), "CUDA graphs of 1 stretches");
  EXPECT_TRUE(device_->Synchronize().ok());
}

TEST_F(GraphsTest, AreNotMadeUnlessAskedFor) {
  Open(false);
  for (int call = 0; call < 3; ++call) Replay([&] { AddFive(); });
  EXPECT_EQ(sums_, std::vector<float>(kElements, 15));
  EXPECT_EQ(times_queued_, 3);
  EXPECT_EQ(stream().captures, 0);
  EXPECT_STREQ(device_->DescribeReplays(), "");
}

// The queue is called once more after a capture that failed, and no other stretch is captured.
TEST_F(GraphsTest, GiveUpWhereACaptureFailsAndDoTheWorkAllTheSame) {
  const struct {
    Fault fault;
    int times_queued;
    const char* why;
  } cases[] = {{Fault::kAtBegin, 3, "beginning to capture a graph failed"},
               {Fault::kOfAnOperation, 4, "Add failed"},
               {Fault::kOfInstantiation, 4, "making a graph failed"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.why);
    Open(true);
    sums_.assign(kElements, 0);
    times_queued_ = 0;
    for (int call = 0; call < 2; ++call) Replay([&] { AddFive(); }, /*key=*/1);
    stream().fault = c.fault;
    for (int call = 0; call < 3; ++call) Replay([&] { AddFive(); });
    stream().fault = Fault::kNone;
    for (int call = 0; call < 3; ++call) Replay([&] { AddFive(); }, /*key=*/2);
    EXPECT_EQ(sums_, std::vector<float>(kElements, 5 * 8));
    EXPECT_EQ(times_queued_, 2 + c.times_queued + 3);
    Replay([&] { AddFive(); }, /*key=*/1);
    EXPECT_EQ(times_queued_, 2 + c.times_queued + 3) << "what is kept stays";
    EXPECT_THAT(device_->DescribeReplays(),
                HasSubstr("CUDA graphs of 1 stretches; no more, for a capture has failed: cuda: " +
                          std::string(c.why)));
    EXPECT_TRUE(device_->Synchronize().ok()) << "nobody has lost anything";
  }
}

// Whatever waits, allocates or moves data to or from the host would not happen again, or would
// happen with the data of the first time.
TEST_F(GraphsTest, RefuseWhatTheyCannotHoldAndDoItAllTheSame) {
  std::vector<float> host(kElements, 2);
  View on_host;
  const struct {
    const char* what;
    std::function<void()> operation;
  } cases[] = {
      {"CopyIn", [&] { device_->CopyIn(one_, host.data()); }},
      {"CopyOut", [&] { device_->CopyOut(host.data(), sum_); }},
      {"Synchronize", [&] { EXPECT_TRUE(device_->Synchronize().ok()); }},
      {"allocating memory", [&] { device_->Free(device_->Allocate(64), 64); }},
      {"freeing memory", [&] { device_->Free(nullptr, 64); }},
      {"Fetch", [&] { device_->Fetch(one_, on_host); }},
      {"Store", [&] { device_->Store(on_host, one_); }},
      {"AwaitTransfers", [&] { device_->AwaitTransfers(); }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    std::vector<std::vector<float>> results;
    for (const bool replays : {false, true}) {
      Open(replays);
      sums_.assign(kElements, 0);
      ones_.assign(kElements, 1);
      host.assign(kElements, 2);
      on_host = {device_->AllocateHost(64), 1, kElements, DType::kF32};
      for (int call = 1; call <= 4; ++call) {
        Replay([&] {
          device_->Add(one_, sum_);
          c.operation();
          device_->Add(one_, sum_);
        });
        for (float& value : host) value += static_cast<float>(call);
      }
      EXPECT_TRUE(device_->Synchronize().ok());
      results.push_back(sums_);
      results.push_back(host);
      results.push_back(ones_);
      if (!replays) continue;
      EXPECT_THAT(device_->DescribeReplays(),
                  HasSubstr(std::string("0 stretches; no more, for a capture has failed: ") +
                            c.what + " cannot be part of a graph"));
      device_->FreeHost(on_host.data, 64);
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[3 + i], results[i]);
  }
}

// A product chooses among algorithms by running them, which a capture would not do: what it then
// took for the fastest would stay.
TEST_F(GraphsTest, ChooseNothingWhileTheyCapture) {
  int call = 0;
  Replay([] {});
  Replay([&] {
    ++call;
    device_->MatMul(one_, Transpose::kYes, one_, Transpose::kNo, 0, sum_of_products());
  });
  EXPECT_EQ(call, 2);
  EXPECT_EQ(products_, std::vector<float>(kElements * kElements, 1));
  EXPECT_THAT(device_->DescribeReplays(), HasSubstr("choosing a product's algorithm cannot be"));
  EXPECT_TRUE(device_->Synchronize().ok());
}

TEST_F(GraphsTest, CompileNoAttentionWhileTheyCapture) {
  const AttentionShape shape = {
      .batch = 1, .seq_len = 4, .heads = 1, .head_dim = 64, .kv_heads = 1};
  alignas(64) uint16_t elements[4][4 * 64] = {};
  alignas(64) float statistics[4] = {};
  alignas(64) float scratch[4096];
  const auto view = [&](int i) { return View{elements[i], 4, 64, DType::kBf16}; };
  Replay([] {});
  Replay([&] {
    device_->Attention(shape, view(0), view(1), view(2), {}, view(3), {statistics, 1, 4},
                       {scratch, 1, 4096});
  });
  EXPECT_THAT(device_->DescribeReplays(), HasSubstr("compiling attention cannot be"));
  EXPECT_TRUE(device_->Synchronize().ok());
  EXPECT_GT(statistics[3], 1.3F) << "log of 4 keys";
}

// A failure of the device's is no capture's: it shows where it always does.
TEST_F(GraphsTest, LeaveAFailureOfTheDeviceToSynchronize) {
  Replay([&] { AddFive(); });
  const auto wrong = [&] { device_->Add(one_, {sums_.data(), 1, kElements - 1}); };
  wrong();
  Replay([&] { AddFive(); });
  EXPECT_EQ(stream().captures, 0) << "what has failed is not captured";
  EXPECT_FALSE(device_->Synchronize().ok());
  Replay([&] { wrong(); });
  EXPECT_FALSE(device_->Synchronize().ok()) << "it fails without a capture too";
}

TEST_F(GraphsTest, AreNoMoreThanTheMost) {
  for (int round = 0; round < 2; ++round) {
    for (int64_t key = 0; key < Graphs::kMostGraphs + 2; ++key) Replay([&] { AddFive(); }, key);
  }
  EXPECT_EQ(stream().captures, Graphs::kMostGraphs);
  EXPECT_EQ(sums_, std::vector<float>(kElements, 2 * 5 * (Graphs::kMostGraphs + 2)));
  EXPECT_STREQ(device_->DescribeReplays(), "CUDA graphs of 128 stretches, the most that are kept");
}

}  // namespace
}  // namespace weft
