// All ranks of a group make the same calls in the same order, in every layout of the matrix and of
// the seeded generator: a step, an evaluation and what leads up to them, of the worker's own code.
#include "tests/parity/call_order.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/layout_draw.h"
#include "tests/parity/parity_job.h"
#include "tests/worker/passing_backend.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kind = RecordedCall::Kind;

// ClearedDevice clears what it allocates: what no other rank sends is zero, not whatever was there.
class ClearedDevice final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void* Allocate(int64_t bytes) override {
    void* const data = PassingDevice::Allocate(bytes);
    if (data != nullptr) std::memset(data, 0, static_cast<size_t>(bytes));
    return data;
  }
};

// The calls of each rank, alone with a Comm that only records, up to the save after its first step.
std::vector<RecordedCalls> CallsOf(JobSpec job, const Layout& layout) {
  job.training.steps = 1;
  job.validation = {.interval = 1, .steps = 1};
  job.data.split = 0.2;
  // The folder is this process's own: tests run beside each other.
  const std::string folder = absl::StrCat(testing::TempDir(), "weft-call-order-", getpid());
  std::vector<RecordedCalls> by_rank;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    std::filesystem::create_directories(folder);
    const std::unique_ptr<Device> cpu = MakeCpuDevice({.threads = 1});
    ClearedDevice device(*cpu);
    RecordingComm comm(rank, layout.world_size());
    RunHooks hooks;
    const absl::Status enough = absl::CancelledError("that is all");
    hooks.exchange_shards = [&](const SaveId&, const absl::StatusOr<ShardRecord>&) {
      return absl::StatusOr<std::vector<ShardRecord>>(enough);
    };
    const Assignment assignment{
        .job = job, .layout = layout, .run_folder = folder, .load_checkpoint = ""};
    auto trainer = Trainer::Create(assignment, rank, device, comm, std::move(hooks));
    if (trainer.ok()) {
      EXPECT_EQ((*trainer)->Run().status(), enough) << LayoutText(layout);
    } else {
      ADD_FAILURE() << trainer.status() << " " << LayoutText(layout);
    }
    by_rank.push_back(comm.calls());
    std::filesystem::remove_all(folder);
  }
  return by_rank;
}

std::vector<Layout> LayoutsOf(const DrawnModel& model) {
  constexpr uint64_t kMatrix = 20261121;  // layout_matrix_test's seed
  std::vector<Layout> layouts = OddLayouts(model);
  for (const auto& [seed, count] : {std::pair(kMatrix, model.draws), std::pair(uint64_t{1}, 20)}) {
    for (Layout& layout : DrawLayouts(model, seed, count)) layouts.push_back(std::move(layout));
  }
  return layouts;
}

class CallOrder : public testing::TestWithParam<size_t> {};

TEST_P(CallOrder, IsThatOfAllRanksOfEachGroup) {
  const DrawnModel model = ModelsToDrawFor()[GetParam()];
  size_t calls = 0;
  for (const Layout& layout : LayoutsOf(model)) {
    const std::vector<RecordedCalls> by_rank = CallsOf(model.job, layout);
    EXPECT_THAT(Replay(by_rank), IsEmpty()) << model.name << ": " << LayoutText(layout);
    for (const RecordedCalls& of_rank : by_rank) calls += of_rank.size();
  }
  EXPECT_GT(calls, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Parity, CallOrder, testing::Range(size_t{0}, ModelsToDrawFor().size()),
                         [](const auto& tested) { return ModelsToDrawFor()[tested.param].name; });

// ---- the replay bites

// Swaps the first two calls of `kind` to one group that differ.
void SwapPair(Kind kind, RecordedCalls& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    for (size_t j = i + 1; j < calls.size() && calls[i].kind == kind; ++j) {
      if (calls[j].kind != kind || calls[j].group != calls[i].group) continue;
      if (calls[j].what == calls[i].what) continue;
      std::swap(calls[i].what, calls[j].what);
      return;
    }
  }
  ADD_FAILURE() << "no such pair";
}

// Sums over ZeRO's parts, then over their replicas, of each bucket, beside the passes.
Layout Hybrid() {
  return {.dp = 4,
          .tp = 2,
          .zero_stage = 1,
          .micro_batch_size = 1,
          .gradient_accumulation_steps = 2,
          .zero_hpz_partition_size = 2,
          .sequence_parallel = true};
}

TEST(Replay, SeesAPairThatOneRankSwaps) {
  const std::vector<RecordedCalls> sound = CallsOf(EnglishJob(), Hybrid());
  ASSERT_THAT(Replay(sound), IsEmpty());
  for (const Kind kind : {Kind::kStart, Kind::kStartBeside, Kind::kCollective}) {
    std::vector<RecordedCalls> swapped = sound;
    SwapPair(kind, swapped[3]);
    EXPECT_THAT(Replay(swapped), Contains(HasSubstr("disagree with rank ")));
  }
}

// Returns the call that ranks 0 and 1 start as their group number `round`.
RecordedCall Started(int round, const char* what) {
  RecordedCall call;
  call.kind = Kind::kStart;
  call.group.round = round;
  call.group.ranks = {0, 1};
  call.what = what;
  return call;
}

// Each group sees its one call; what is started runs in order, so neither ever begins.
TEST(Replay, SeesStartedCallsOfTwoGroupsInOtherOrders) {
  const RecordedCall one = Started(0, "one");
  const RecordedCall two = Started(1, "two");
  RecordedCall wait;
  wait.kind = Kind::kWait;
  EXPECT_THAT(Replay({{one, two, wait}, {one, two, wait}}), IsEmpty());
  EXPECT_THAT(Replay({{one, two}, {two, one}}),
              Contains("rank 0 waits for ever: started one among ranks 0,1"));
}

TEST(Replay, SeesACallThatIsNotWaitedFor) {
  std::vector<RecordedCalls> by_rank =
      CallsOf(EnglishJob(), {.dp = 2, .zero_stage = 1, .micro_batch_size = 4});
  for (RecordedCalls& calls : by_rank) {
    calls.erase(std::remove_if(calls.begin(), calls.end(),
                               [](const RecordedCall& call) { return call.kind == Kind::kWait; }),
                calls.end());
  }
  EXPECT_THAT(Replay(by_rank), Contains(HasSubstr(" has not waited for started reduce-scatter")));
}

TEST(Replay, SeesASumOverTpThatIsNotWaitedFor) {
  std::vector<RecordedCalls> by_rank = CallsOf(EnglishJob(), {.tp = 2, .micro_batch_size = 8});
  ASSERT_THAT(Replay(by_rank), IsEmpty());
  for (RecordedCalls& calls : by_rank) {
    std::erase_if(calls, [](const RecordedCall& call) { return call.kind == Kind::kWaitBeside; });
  }
  EXPECT_THAT(Replay(by_rank), Contains(HasSubstr(" has not waited for started all-reduce")));
}

TEST(Replay, SeesTransfersThatDoNotMeet) {
  const Layout layout = {.pp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 4};
  const std::vector<RecordedCalls> sound = CallsOf(EnglishJob(), layout);
  ASSERT_THAT(Replay(sound), IsEmpty());
  const auto is_exchange = [](const RecordedCall& call) { return call.kind == Kind::kExchange; };
  std::vector<RecordedCalls> missing = sound;
  missing[1].erase(std::find_if(missing[1].begin(), missing[1].end(), is_exchange));
  EXPECT_THAT(Replay(missing), Contains(HasSubstr("rank 0 waits for ever: ")));
  std::vector<RecordedCalls> shorter = sound;
  --std::find_if(shorter[1].begin(), shorter[1].end(), is_exchange)->transfers.front().data.rows;
  EXPECT_THAT(Replay(shorter), Contains(HasSubstr("rank 0 and rank 1 disagree on a transfer")));
}

}  // namespace
}  // namespace weft
