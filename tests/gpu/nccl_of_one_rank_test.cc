// Every call of NCCL with a single rank: what one device can prove of it. Collectives become
// copies, so that data must stay as it is, bit by bit.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/tested_api.h"
#include "tests/gpu/thread_relay.h"

namespace weft {
namespace {

class NcclOfOneRank : public ::testing::Test {
 protected:
  void SetUp() override {
    const bool has_device = TestedApi() != nullptr;
    if (HasFailure()) FAIL() << "no device to go on with";
    if (!has_device) GTEST_SKIP() << "no CUDA device here";
    const DeviceOptions options;
    const BackendStatus opened = TestedApi()->open_device(&options, &device_);
    ASSERT_TRUE(opened.ok()) << opened.text;
    const CommOptions comm = {.init_timeout_ms = 60000,
                              .timeout_ms = 20000,
                              .device = device_,
                              .relay = &relay_,
                              .transport = TransportKind::kNccl,
                              .starts_calls = true,
                              .starts_beside = true};
    const BackendStatus reached = TestedApi()->open_comm(&comm, &comm_);
    const std::string why = reached.text;
    if (why.find("NCCL does not load") != std::string::npos) GTEST_SKIP() << why;
    ASSERT_TRUE(reached.ok()) << reached.text;
    EXPECT_EQ(std::string(comm_->description()).substr(0, 5), "NCCL ");
    const int self = 0;
    const BackendStatus made = comm_->NewGroup(GroupUse::kStarted, &self, 1, &group_);
    ASSERT_TRUE(made.ok()) << made.text;
    data_ = static_cast<char*>(device_->Allocate(kBytes));
    ASSERT_NE(data_, nullptr);
  }
  void TearDown() override {
    if (data_ != nullptr) device_->Free(data_, kBytes);
    if (comm_ != nullptr) TestedApi()->close_comm(comm_);
    if (device_ != nullptr) TestedApi()->close_device(device_);
  }

  // Returns as many elements as fit into half of the memory, at `half` 0 or 1.
  View Half(int half, DType dtype) const {
    return {data_ + half * kBytes / 2, 1, kBytes / 2 / ElementBytes(dtype), dtype};
  }
  // Values that every element type can hold, other ones at each call.
  std::vector<char> Fill(View view) {
    std::vector<char> bytes(static_cast<size_t>(view.bytes()));
    for (char& byte : bytes) byte = static_cast<char>(++seed_ % 59 + 1);
    device_->CopyIn(view, bytes.data());
    return bytes;
  }
  std::vector<char> Read(View view) {
    std::vector<char> bytes(static_cast<size_t>(view.bytes()));
    device_->CopyOut(bytes.data(), view);
    return bytes;
  }

  static constexpr int64_t kBytes = 1 << 20;
  ThreadNotes notes_;
  ThreadRelay relay_{notes_, 0};
  Device* device_ = nullptr;
  Comm* comm_ = nullptr;
  int group_ = -1;
  char* data_ = nullptr;
  int seed_ = 0;
};

TEST_F(NcclOfOneRank, LeavesWhatIsReducedAndGatheredAsItIs) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const View view = Half(0, dtype);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      const std::vector<char> before = Fill(view);
      BackendStatus s = comm_->AllReduce(group_, op, view);
      ASSERT_TRUE(s.ok()) << s.text;
      s = comm_->ReduceScatter(group_, op, view);
      ASSERT_TRUE(s.ok()) << s.text;
      s = comm_->AllGather(group_, view);
      ASSERT_TRUE(s.ok()) << s.text;
      EXPECT_TRUE(Read(view) == before);
    }
  }
  ASSERT_TRUE(device_->Synchronize().ok());
}

TEST_F(NcclOfOneRank, SendsItselfWhatItReceives) {
  const View from = Half(0, DType::kF32);
  const View to = Half(1, DType::kF32);
  const std::vector<char> sent = Fill(from);
  Fill(to);
  const Transfer transfers[] = {{true, 0, from}, {false, 0, to}};
  const BackendStatus s = comm_->Exchange(transfers, 2);
  ASSERT_TRUE(s.ok()) << s.text;
  EXPECT_TRUE(Read(to) == sent);
}

TEST_F(NcclOfOneRank, EndsHostReductionsBarriersAndStartedCalls) {
  std::vector<double> values(1000, 0.25);
  const BackendStatus reduced = comm_->AllReduceHost(group_, ReduceOp::kSum, values.data(), 1000);
  ASSERT_TRUE(reduced.ok()) << reduced.text;
  EXPECT_EQ(values, std::vector<double>(1000, 0.25));
  const View view = Half(0, DType::kF32);
  const std::vector<char> before = Fill(view);
  int64_t ticket = 0;
  for (int i = 0; i < 100; ++i) {  // more than there are tickets at a time
    const BackendStatus s =
        comm_->Start({CollectiveKind::kAllReduce, group_, ReduceOp::kSum, view}, &ticket);
    ASSERT_TRUE(s.ok()) << s.text;
  }
  ASSERT_TRUE(comm_->Wait(ticket).ok());
  EXPECT_TRUE(Read(view) == before);
  const BackendStatus barrier = comm_->Barrier(group_);
  EXPECT_TRUE(barrier.ok()) << barrier.text;
}

}  // namespace
}  // namespace weft
