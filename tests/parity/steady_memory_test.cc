// Once training is under way nothing of ours allocates: counted under every malloc and mmap of real
// ranks, those of Open MPI, OpenBLAS and oneDNN included.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kSecondStep = 1;

// Open MPI keeps lists of fragments and requests that it lengthens by 0.3, 16 and 52 KiB at once
// when more messages are in flight than ever before (opal_free_list_grow_st, seen in every growth
// that there was); they do not shrink. 20 steps of a leak of ours are more than this.
constexpr int64_t kMessageListsBytes = int64_t{160} << 10;
// A line of metrics.jsonl and the heads of messages in flight come and go.
constexpr int64_t kComesAndGoesBytes = int64_t{64} << 10;
// Pages that are touched late: of code, of a thread's stack, of the file of tokens.
constexpr int64_t kLatePagesBytes = int64_t{512} << 10;
// Beside the arena: Open MPI's buffers for messages, the libraries' own, the trainer's objects.
constexpr int64_t kLibrariesBytes = int64_t{48} << 20;

// Where a rank has several threads: one that allocates for the first time, at whatever step,
// reserves addresses of an arena (glibc: 128 MiB, without pages).
constexpr int64_t kThreadAddressesBytes = int64_t{128} << 20;

// Says, in words, what in `trace` of a rank with `threads` contradicts the claim.
std::vector<std::string> Growth(const MemoryTrace& trace, int threads) {
  std::vector<std::string> found;
  const MemoryTrace::Step& second = trace.steps.at(kSecondStep);
  const MemoryTrace::Step& last = trace.steps.back();
  int64_t peak_bytes = 0;
  for (size_t step = kSecondStep + 1; step < trace.steps.size(); ++step) {
    peak_bytes = std::max(peak_bytes, trace.steps[step].peak_bytes);
  }
  const auto expect = [&](const std::string& what, int64_t bytes, int64_t allowed_bytes) {
    if (bytes > allowed_bytes) found.push_back(absl::StrCat(what, " by ", bytes, " bytes"));
  };
  std::string when;
  for (size_t step = kSecondStep + 1; step < trace.steps.size(); ++step) {
    const int64_t more = trace.steps[step].live_bytes - trace.steps[step - 1].live_bytes;
    if (more != 0) absl::StrAppend(&when, " ", step + 1, ":", more);
  }
  expect(absl::StrCat("the heap grows (step:bytes", when, ")"), last.live_bytes - second.live_bytes,
         kMessageListsBytes);
  expect("the heap's peak rises", peak_bytes - second.live_bytes,
         kMessageListsBytes + kComesAndGoesBytes);
  expect("mappings grow", last.mapped_bytes - second.mapped_bytes,
         (threads - 1) * kThreadAddressesBytes);
  expect("the resident set grows", last.rss_bytes - second.rss_bytes, kLatePagesBytes);
  expect("the resident set exceeds base and arena",
         last.rss_bytes - trace.base_rss_bytes - trace.arena_bytes, kLibrariesBytes);
  return found;
}

std::vector<std::string> GrowthOf(const ParityJob& parity) {
  std::vector<std::string> found;
  const Curve curve = MustTrain(parity);
  EXPECT_EQ(static_cast<int>(curve.memory.size()), parity.layout.world_size());
  for (const MemoryTrace& trace : curve.memory) {
    EXPECT_EQ(trace.steps.size(), 20u);
    if (trace.steps.size() != 20) continue;
    for (std::string& line : Growth(trace, parity.job.threads_per_worker))
      found.push_back(std::move(line));
  }
  return found;
}

std::vector<Layout> Layouts() {
  return {
      {.micro_batch_size = 4},
      {.dp = 2, .pp = 2, .tp = 2},
      {.dp = 4, .zero_stage = 3},
      {.dp = 2, .zero_stage = 1, .micro_batch_size = 2, .offload_optimizer = OffloadDevice::kCpu},
      {.pp = 2,
       .tp = 2,
       .pp_schedule = ScheduleKind::kInterleaved,
       .micro_batch_size = 2,
       .recompute = Recompute::kFull,
       .virtual_stages = 2,
       .sequence_parallel = true,
       .head_chunk_tokens = 22},
      {.dp = 2, .pp = 2, .pp_schedule = ScheduleKind::kZeroBubbleH1, .micro_batch_size = 2}};
}

TEST(SteadyMemory, NothingGrowsAfterTheSecondStepInAnyLayout) {
  for (const JobSpec& job : {EnglishJob(), EnglishLlamaJob(), In(Precision::kBf16, EnglishJob())}) {
    for (const Layout& layout : Layouts()) {
      EXPECT_THAT(GrowthOf({.job = job,
                            .layout = layout,
                            .ranks = Ranks::kProcesses,
                            .counts_allocations = true}),
                  IsEmpty())
          << WordOf(job.model.architecture) << " " << LayoutText(layout);
    }
  }
}

TEST(SteadyMemory, NothingGrowsWhereAWorkerHasTwoThreads) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    JobSpec job = In(precision, EnglishJob());
    job.threads_per_worker = 2;
    EXPECT_THAT(GrowthOf({.job = job,
                          .layout = {.micro_batch_size = 4},
                          .ranks = Ranks::kProcesses,
                          .counts_allocations = true}),
                IsEmpty())
        << WordOf(precision);
  }
}

struct LeakCase {
  PlantedBug bug;
  const char* seen_in;
};

class PlantedInMemory : public testing::TestWithParam<LeakCase> {};

TEST_P(PlantedInMemory, IsSeen) {
  const JobSpec job = EnglishJob();
  EXPECT_THAT(GrowthOf({.job = job,
                        .layout = {.dp = 2, .micro_batch_size = 2},
                        .ranks = Ranks::kProcesses,
                        .bug = GetParam().bug,
                        .counts_allocations = true}),
              Contains(HasSubstr(GetParam().seen_in)));
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInMemory,
                         testing::Values(LeakCase{PlantedBug::kLeak, "the heap grows"},
                                         LeakCase{PlantedBug::kScratch, "the heap's peak rises"},
                                         LeakCase{PlantedBug::kMapping, "mappings grow"}));

}  // namespace
}  // namespace weft
