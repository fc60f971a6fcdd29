#include "plan/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/search/describe.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool IsSound(const JobSpec& job, const Layout& layout) {
  return CheckRunnable(job.model, job.cluster, job.batch(), layout).ok();
}

// With cp 1.
void FixDegrees(JobSpec& job, int dp, int tp, int pp) {
  job.layout.cp = 1;
  job.layout.dp = dp;
  job.layout.tp = tp;
  job.layout.pp = pp;
}

constexpr ScheduleKind kSchedules[] = {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe,
                                       ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1};

constexpr Recompute kRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

// Every layout that the engine can run, by trying all numbers.
std::vector<Layout> BruteForceWith(int cp, const JobSpec& job) {
  std::vector<Layout> layouts;
  const int slots = job.cluster.slots();
  const int64_t global = job.training.global_batch_size;
  for (int tp = 1; tp <= slots; ++tp) {
    for (int pp = 1; pp <= slots; ++pp) {
      for (int dp = 1; dp <= slots; ++dp) {
        for (int64_t micro = 1; micro <= global; ++micro) {
          for (int64_t count = 1; count <= global; ++count) {
            for (const ScheduleKind schedule : kSchedules) {
              const bool interleaved = schedule == ScheduleKind::kInterleaved;
              if (pp == 1 && schedule != kSchedules[0]) continue;  // the same step
              // Chunks are parts of a stage's blocks.
              const int64_t most = (job.model.num_blocks + pp - 1) / pp;
              for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? most : 1); ++chunks) {
                if (most % chunks != 0) continue;
                Layout layout = {.dp = dp,
                                 .pp = pp,
                                 .cp = cp,
                                 .tp = tp,
                                 .pp_schedule = schedule,
                                 .micro_batch_size = micro,
                                 .gradient_accumulation_steps = count,
                                 .virtual_stages = chunks};
                // With nobody to share it with, a shard is the whole.
                const int most_zero = layout.data_group() == 1 ? 0 : 3;
                for (int i = 0; i < 3 * (most_zero + 1); ++i) {
                  layout.recompute = kRecomputes[i % 3];
                  layout.zero_stage = i / 3;
                  for (const bool shared : {true, false}) {
                    layout.sequence_parallel = shared;
                    if (IsSound(job, layout)) layouts.push_back(layout);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return layouts;
}

std::vector<Layout> BruteForce(const JobSpec& job) {
  std::vector<Layout> layouts;
  for (int cp = 1; cp <= job.cluster.slots(); ++cp) {
    for (Layout& layout : BruteForceWith(cp, job)) layouts.push_back(std::move(layout));
  }
  return layouts;
}

// A layout takes the same whatever memory there is: each is priced once.
TEST(FindPlan, TakesTheFastestOfAllThatFit) {
  struct Priced {
    double objective_s;
    int64_t peak_bytes;
  };
  JobSpec roomy = SampleJob();
  roomy.cluster.device.memory_bytes = int64_t{1} << 40;
  std::vector<Priced> all;
  for (const Layout& layout : BruteForce(roomy)) {
    const auto plan = PlanFor(roomy, layout, Purpose::kRun);
    if (plan.ok()) all.push_back({plan->time.total_s() / plan->goodput, plan->peak_bytes()});
  }
  for (const int64_t memory_mib : {300, 400, 600, 2048}) {
    JobSpec job = SampleJob();
    job.cluster.device.memory_bytes = memory_mib << 20;
    const auto plan = FindPlan(job, Purpose::kRun);
    const int64_t usable_bytes = job.cluster.device.memory_bytes - job.cluster.device.library_bytes;
    double best_s = 0;
    int64_t fitting = 0;
    for (const Priced& other : all) {
      if (other.peak_bytes > usable_bytes) continue;
      ++fitting;
      if (best_s == 0 || other.objective_s < best_s) best_s = other.objective_s;
    }
    ASSERT_EQ(plan.ok(), fitting > 0) << memory_mib << " MiB: " << plan.status();
    if (!plan.ok()) continue;
    EXPECT_EQ(plan->usable_bytes, usable_bytes);
    // Balanced splits may be better still.
    EXPECT_LE(plan->time.total_s() / plan->goodput, best_s * (1 + 1e-9)) << memory_mib << " MiB";
    EXPECT_LE(plan->peak_bytes(), plan->usable_bytes);
  }
}

TEST(FindPlan, AccountsForEveryLayoutAndGivesReasonsForTheNearest) {
  JobSpec job = SampleJob();
  job.cluster.device.memory_bytes = int64_t{400} << 20;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int64_t points = 0;
  for (const Layout& layout : BruteForce(job)) {
    const bool may_balance = layout.pp > 1 && layout.pp < job.model.num_blocks &&
                             layout.pp_schedule != ScheduleKind::kInterleaved;
    points += may_balance ? 2 : 1;  // the even and the balanced split
  }
  EXPECT_EQ(plan->counts.points, points);
  EXPECT_EQ(plan->counts.points,
            plan->counts.evaluated + plan->counts.cut_by_time + plan->counts.cut_by_memory);
  RejectionCause last = RejectionCause::kSlower;
  double last_step_s = plan->time.total_s();
  int64_t last_bytes = 0;
  for (const Rejection& rejection : plan->rejections) {
    SCOPED_TRACE(LayoutText(rejection.layout));
    EXPECT_FALSE(RejectionText(job, *plan, rejection).empty());
    // Nearest first: losers by time, then misfits by bytes, then broken rules.
    if (rejection.cause == RejectionCause::kSlower) {
      EXPECT_EQ(last, RejectionCause::kSlower);
      const double objective_s = rejection.time.total_s() / rejection.goodput;
      EXPECT_GE(objective_s, last_step_s - 1e-12);
      EXPECT_LE(rejection.memory_bytes, plan->usable_bytes);
      last_step_s = objective_s;
    } else if (rejection.cause == RejectionCause::kDoesNotFit) {
      EXPECT_NE(last, RejectionCause::kBrokenRule);
      EXPECT_GT(rejection.memory_bytes, plan->usable_bytes);
      EXPECT_GE(rejection.memory_bytes, last_bytes);
      last_bytes = rejection.memory_bytes;
    } else {
      EXPECT_EQ(CheckRunnable(job.model, job.cluster, job.batch(), rejection.layout).code(),
                absl::StatusCode::kInvalidArgument);
    }
    last = rejection.cause;
  }
  EXPECT_GT(last_bytes, 0);
}

TEST(FindPlan, IsTheSameEveryTime) {
  const JobSpec job = SampleJob();
  const auto first = FindPlan(job, Purpose::kRun);
  const auto second = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->layout, second->layout);
  ASSERT_EQ(first->rejections.size(), second->rejections.size());
  for (size_t i = 0; i < first->rejections.size(); ++i) {
    EXPECT_EQ(first->rejections[i].layout, second->rejections[i].layout);
    EXPECT_EQ(first->rejections[i].time.seconds, second->rejections[i].time.seconds);
  }
}

// Nodes have no names here; what has one is the cluster, its device and the job.
TEST(FindPlan, DoesNotDependOnNames) {
  for (JobSpec job : {SampleJob(), LargeJob()}) {
    job.layout = {};
    JobSpec renamed = job;
    renamed.name = "zebra";
    renamed.output_dir = "/elsewhere";
    renamed.cluster.name = "aardvark";
    renamed.cluster.device.name = "thing";
    const auto plan = FindPlan(job, Purpose::kEstimate);
    const auto other = FindPlan(renamed, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok() && other.ok()) << plan.status() << other.status();
    EXPECT_EQ(plan->layout, other->layout);
    EXPECT_EQ(plan->time.seconds, other->time.seconds);
    EXPECT_EQ(plan->goodput, other->goodput);
    EXPECT_EQ(plan->peak_bytes(), other->peak_bytes());
    EXPECT_EQ(plan->counts.evaluated, other->counts.evaluated);
    ASSERT_EQ(plan->rejections.size(), other->rejections.size());
    for (size_t i = 0; i < plan->rejections.size(); ++i) {
      EXPECT_EQ(plan->rejections[i].layout, other->rejections[i].layout);
      EXPECT_EQ(plan->rejections[i].time.seconds, other->rejections[i].time.seconds);
      EXPECT_EQ(plan->rejections[i].memory_bytes, other->rejections[i].memory_bytes);
    }
  }
}

TEST(SimplerWithin, IsTheRunnerUpThatHasNoMechanismMoreAndOneLess) {
  Plan plan;
  plan.layout = {.dp = 4, .tp = 2, .zero_stage = 3};
  plan.time[TimeTerm::kMatmul] = 1;
  const auto add = [&plan](const Layout& layout, double step_s) {
    Rejection rejection{.layout = layout};
    rejection.time[TimeTerm::kMatmul] = step_s;
    plan.rejections.push_back(rejection);
  };
  EXPECT_EQ(SimplerWithin(plan, 0.03), nullptr);
  add({.dp = 8, .tp = 1, .zero_stage = 3, .recompute = Recompute::kFull}, 1.001);  // recomputes
  add({.dp = 4, .tp = 2, .zero_stage = 3, .micro_batch_size = 2}, 1.002);          // alike
  EXPECT_EQ(SimplerWithin(plan, 0.03), nullptr);
  add({.dp = 4, .tp = 2, .zero_stage = 1}, 1.01);
  EXPECT_EQ(SimplerWithin(plan, 0.03), &plan.rejections[2]);
  add({.dp = 8, .tp = 1, .zero_stage = 1}, 1.02);  // simpler still
  add({.dp = 8, .tp = 1, .zero_stage = 1, .micro_batch_size = 2}, 1.021);
  EXPECT_EQ(SimplerWithin(plan, 0.03), &plan.rejections[3]);
  add({.dp = 8}, 1.031);
  EXPECT_EQ(SimplerWithin(plan, 0.03), &plan.rejections[3]);
}

TEST(FindPlan, MoreSlotsAreNeverSlower) {
  double last = 0;
  for (const int slots : {1, 2, 3, 4, 6, 8}) {
    JobSpec job = SampleJob();
    job.cluster.slots_per_node = slots;
    job.cluster.cores_per_node = slots;
    const auto plan = FindPlan(job, Purpose::kRun);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_GE(plan->tokens_per_s(job.batch()), last) << slots;
    last = plan->tokens_per_s(job.batch());
  }
}

// Four workers on one core compute no faster than one and talk more.
TEST(FindPlan, UsesFewerSlotsThanThereAreWhenThatIsFaster) {
  JobSpec job = SampleJob();
  job.cluster.cores_per_node = 1;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.world_size(), 1);
}

TEST(FindPlan, SaysByWhichTermsTheOthersAreSlower) {
  JobSpec job = SampleJob();
  job.layout.dp = 1;
  job.layout.tp = 1;
  job.layout.micro_batch_size = 2;
  job.layout.pp_schedule = ScheduleKind::kOneForwardOneBackward;
  job.layout.recompute = Recompute::kNone;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GE(plan->rejections.size(), 3U);  // pp 1 to 4
  for (size_t i = 0; i < 3; ++i) {
    const Rejection& rejection = plan->rejections[i];
    const auto other = PlanFor(job, rejection.layout, Purpose::kRun);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_NEAR(rejection.time.total_s(), other->time.total_s(), 1e-12);
    EXPECT_EQ(rejection.memory_bytes, other->peak_bytes());
    EXPECT_THAT(RejectionText(job, *plan, rejection), HasSubstr(" % slower: "));
  }
  // pp=1: no bubble, all the work.
  EXPECT_THAT(RejectionText(job, *plan, plan->rejections[2]), HasSubstr("matmul +"));
}

// One microbatch: gpipe and 1f1b are the same list.
TEST(FindPlan, EqualsGoToTheSimpler) {
  JobSpec job = SampleJob();
  FixDegrees(job, 1, 1, 2);
  job.layout.micro_batch_size = 16;
  job.layout.virtual_stages = 1;
  job.layout.layers_per_stage = std::vector<int64_t>{};
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<ScheduleKind> order = {plan->layout.pp_schedule};
  for (const Rejection& rejection : plan->rejections) {
    if (rejection.cause == RejectionCause::kSlower) order.push_back(rejection.layout.pp_schedule);
  }
  const auto place = [&](ScheduleKind kind) { return std::find(order.begin(), order.end(), kind); };
  ASSERT_NE(place(ScheduleKind::kGpipe), order.end());
  EXPECT_LT(place(ScheduleKind::kOneForwardOneBackward), place(ScheduleKind::kGpipe));
}

TEST(FindPlan, NamesTheKeyOfAContradiction) {
  struct Case {
    std::string what;
    void (*change)(JobSpec&);
    std::string message;
  };
  const Case cases[] = {
      {"heads", [](JobSpec& job) { job.layout.tp = 3; },
       "parallelism.tp: 3 does not divide n_head 4"},
      {"blocks",
       [](JobSpec& job) {
         job.layout.pp = 7;
         job.cluster.slots_per_node = 8;
       },
       "parallelism.pp: 7 is more than n_layer 6"},
      {"slots", [](JobSpec& job) { job.layout.dp = 8; }, "parallelism.dp: 8 is more than"},
      {"product", [](JobSpec& job) { FixDegrees(job, 2, 2, 2); },
       "parallelism: dp 2 x tp 2 x pp 2 = 8 workers"},
      {"batch", [](JobSpec& job) { job.layout.micro_batch_size = 5; },
       "training.global_batch_size: 16 is no"},
      {"replicas", [](JobSpec& job) { job.layout.dp = 3; },
       "parallelism.dp: 3 does not divide training.global_batch_size 16"},
      {"zero",
       [](JobSpec& job) {
         job.layout.zero_stage = 4;
         job.layout.pp = 2;
       },
       "parallelism.zero_stage: 4 is not a stage of ZeRO"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    JobSpec job = SampleJob();
    c.change(job);
    const auto plan = FindPlan(job, Purpose::kRun);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(plan.status().message()), StartsWith(c.message));
  }
}

TEST(FindPlan, HonoursAWidthOfZeroGroupsOrSaysWhichThereAre) {
  JobSpec job = SampleJob();
  job.cluster.slots_per_node = 8;
  job.cluster.cores_per_node = 8;
  job.layout.zero_hpz_partition_size = 4;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.zero_hpz_partition_size, 4);
  EXPECT_GE(plan->layout.zero_stage, 1);
  EXPECT_EQ(plan->layout.data_group() % 4, 0);
  job.layout.zero_hpz_partition_size = 3;
  EXPECT_EQ(FindPlan(job, Purpose::kRun).status(),
            absl::InvalidArgumentError(
                "parallelism.zero_hpz_partition_size: 3 divides no data group (dp x cp) that slots "
                "and batch allow; use one of 1, 2, 4, 8"));
  job.layout.zero_hpz_partition_size = 4;
  job.layout.zero_stage = 0;
  EXPECT_THAT(std::string(FindPlan(job, Purpose::kRun).status().message()),
              StartsWith("parallelism.zero_hpz_partition_size: 4 with zero_stage 0"));
}

TEST(FindPlan, SharesNoSequenceWhereTensorsAreNotCut) {
  JobSpec job = SampleJob();
  job.layout.sequence_parallel = true;
  for (const int tp : {1, 2}) {
    job.layout.tp = tp;
    const auto plan = FindPlan(job, Purpose::kRun);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->layout.sequence_parallel, tp == 2);
    for (const Rejection& loser : plan->rejections) {
      EXPECT_EQ(loser.layout.sequence_parallel, loser.layout.tp > 1 && tp == 2);
    }
  }
}

TEST(FindPlan, NamesTheNearestLayoutAndTheLimitItBroke) {
  JobSpec job = SampleJob();
  FixDegrees(job, 1, 1, 1);
  job.cluster.device.memory_bytes = int64_t{288} << 20;
  const auto plan = FindPlan(job, Purpose::kRun);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(plan.status().message());
  EXPECT_THAT(message,
              StartsWith("nothing fits: the nearest layout, dp=1 tp=1 pp=1 micro_batch_size=1 "
                         "gradient_accumulation_steps=16 recompute=full needs "));
  EXPECT_THAT(message, HasSubstr(" on stage 0, "));
  EXPECT_THAT(message, HasSubstr(" above the 32.0 MiB of cpu-slot: optimizer "));
  EXPECT_THAT(message, HasSubstr(" is the largest part; use "));
}

// Each change that is named is solved: with it, the job fits.
TEST(FindPlan, NamesTheSmallestChangesThatWouldFit) {
  JobSpec job = SampleJob();
  FixDegrees(job, 1, 1, 1);
  job.layout.micro_batch_size = 16;
  job.cluster.device.memory_bytes = (int64_t{256} + 150) << 20;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(plan.status().message());
  EXPECT_THAT(message, HasSubstr("; use training.micro_batch_size "));
  EXPECT_THAT(message, HasSubstr(", or devices with "));
  const std::string named = message.substr(message.find("; use training.micro_batch_size ") + 32);
  job.layout.micro_batch_size = std::stoll(named);
  EXPECT_TRUE(FindPlan(job, Purpose::kRun).ok()) << message;
}

// A value that a message advises: of "... or cluster.nodes 12, or ..." 12; 0: none.
int Advised(const absl::Status& status, const std::string& key) {
  const std::string message(status.message());
  const size_t at = message.find(" " + key + " ");
  return at == std::string::npos ? 0 : std::stoi(message.substr(at + key.size() + 2));
}

// Whatever the search adds by itself where nothing fits: offload, uneven splits.
TEST(FindPlan, NamesTheLeastNumberOfNodesThatWouldFit) {
  struct Case {
    std::string what;
    int memory_gib, slots;
    std::optional<OffloadDevice> offload;
    int nodes;
  };
  const Case cases[] = {{"offloads", 141, 1, std::nullopt, 3},
                        {"splits unevenly", 141, 1, OffloadDevice::kCpu, 3},
                        {"two small devices a node", 24, 2, std::nullopt, 10},
                        {"keeps all", 141, 1, OffloadDevice::kNone, 10}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    JobSpec job = LargeJob();
    job.training.seq_len = 2048;
    job.training.global_batch_size = 16;
    job.training.mixed_precision = Precision::kBf16;
    job.cluster.device.peak_flops_per_s.bf16 = 400e12;
    job.cluster.device.memory_bytes = int64_t{c.memory_gib} << 30;
    job.cluster.slots_per_node = c.slots;
    job.cluster.nodes = 1;
    job.layout.offload_optimizer = c.offload;
    const absl::Status refused = FindPlan(job, Purpose::kEstimate).status();
    EXPECT_EQ(Advised(refused, "cluster.nodes"), c.nodes) << refused;
    for (int nodes = 2; nodes <= c.nodes; ++nodes) {
      job.cluster.nodes = nodes;
      EXPECT_EQ(FindPlan(job, Purpose::kEstimate).ok(), nodes == c.nodes) << nodes;
    }
  }
}

// Not the fastest of the changes: the nearest.
TEST(FindPlan, NamesTheNearestValueThatWouldFit) {
  JobSpec job = SampleJob();
  FixDegrees(job, 4, 1, 1);
  job.cluster.slots_per_node = 16;
  job.cluster.cores_per_node = 16;
  job.layout.zero_stage = 0;
  job.cluster.device.memory_bytes = (int64_t{256} + 56) << 20;
  const absl::Status refused = FindPlan(job, Purpose::kRun).status();
  ASSERT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  const auto fits = [&job](const auto& change) {
    JobSpec changed = job;
    change(changed.layout);
    return FindPlan(changed, Purpose::kRun).ok();
  };
  const int tp = Advised(refused, "parallelism.tp");
  const int pp = Advised(refused, "parallelism.pp");
  const int zero_stage = Advised(refused, "parallelism.zero_stage");
  EXPECT_EQ(tp, 2) << refused;
  EXPECT_EQ(pp, 2) << refused;
  EXPECT_EQ(zero_stage, 1) << refused;
  EXPECT_TRUE(fits([](LayoutSpec& fixed) { fixed.tp = 2; }));
  EXPECT_TRUE(fits([](LayoutSpec& fixed) { fixed.pp = 2; }));
  EXPECT_TRUE(fits([](LayoutSpec& fixed) { fixed.zero_stage = 1; }));
}

// Between what a layout needs that keeps all activations and what it needs that keeps few.
TEST(FindPlan, RecomputesWhatWouldNotFitOtherwise) {
  JobSpec job = SampleJob();
  job.layout.head_chunk_tokens = 0;
  FixDegrees(job, 1, 1, 1);
  job.layout.micro_batch_size = 16;
  Layout layout = {.micro_batch_size = 16};
  const int64_t keeps = PlanFor(job, layout, Purpose::kRun)->stages[0].memory.total_bytes();
  layout.recompute = Recompute::kFull;
  const int64_t makes = PlanFor(job, layout, Purpose::kRun)->stages[0].memory.total_bytes();
  ASSERT_LT(makes, keeps);
  job.cluster.device.memory_bytes = keeps - 1;
  auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.recompute, Recompute::kSelective) << "the cheaper of the two";
  job.cluster.device.memory_bytes = makes;
  plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.recompute, Recompute::kFull);
  job.layout.recompute = Recompute::kNone;
  const absl::Status kept = FindPlan(job, Purpose::kRun).status();
  EXPECT_EQ(kept.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(kept.message()), HasSubstr("activation_checkpointing.mode full"));
}

// The engine does not run all pairs of schedule and recompute: neither alone is refused for it.
// A GPU on which no layout fits with the optimizer's states, and some do without them.
JobSpec JobThatHasToOffload() {
  JobSpec job = SampleJob();
  job.cluster.device.backend = BackendKind::kCuda;
  job.cluster.cores_per_node = 0;
  job.cluster.slots_per_node = 1;
  job.cluster.nodes = 1;
  job.cluster.device.library_bytes = 0;
  job.layout.recompute = Recompute::kFull;
  job.layout.offload_optimizer = OffloadDevice::kNone;
  job.cluster.device.memory_bytes = int64_t{1} << 40;
  job.layout.micro_batch_size = 1;
  const int64_t needed = FindPlan(job, Purpose::kRun)->stages[0].memory.total_bytes();
  job.cluster.device.memory_bytes = needed - 1;
  return job;
}

TEST(FindPlan, OffloadsTheOptimizerWhereNothingFitsOtherwise) {
  JobSpec job = JobThatHasToOffload();
  job.layout.head_chunk_tokens = 0;
  const auto refused = FindPlan(job, Purpose::kRun);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("offload.optimizer cpu"));
  job.layout.offload_optimizer.reset();
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->layout.offloads_optimizer());
  EXPECT_TRUE(plan->runnable());
  EXPECT_TRUE(plan->stages[0].memory.exact);
  EXPECT_GT(plan->host_bytes(), 0);
  EXPECT_LE(plan->peak_bytes(), plan->usable_bytes);
  job.cluster.device.memory_bytes *= 2;  // it is slower than what fits
  EXPECT_FALSE(FindPlan(job, Purpose::kRun)->layout.offloads_optimizer());
  // On a CPU the host's memory is the device's.
  job = JobThatHasToOffload();
  job.layout.head_chunk_tokens = 0;
  job.cluster.device.backend = BackendKind::kCpu;
  job.layout.offload_optimizer.reset();
  EXPECT_FALSE(FindPlan(job, Purpose::kRun).ok());
}

TEST(FindPlan, RefusesWhatTheHostHasNoRoomFor) {
  JobSpec job = JobThatHasToOffload();
  job.layout.head_chunk_tokens = 0;
  job.layout.offload_optimizer = OffloadDevice::kCpu;
  const int64_t host_bytes = FindPlan(job, Purpose::kRun)->host_bytes();
  job.cluster.host_memory_bytes = host_bytes;
  EXPECT_TRUE(FindPlan(job, Purpose::kRun).ok());
  job.cluster.host_memory_bytes = host_bytes - (1 << 20);
  for (const bool fixed : {true, false}) {
    if (!fixed) job.layout.offload_optimizer.reset();
    const absl::Status refused = FindPlan(job, Purpose::kRun).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(),
                HasSubstr(absl::StrCat("needs ", BytesText(host_bytes),
                                       " of each host's memory, 1.00 MiB above the ",
                                       BytesText(job.cluster.host_memory_bytes))));
  }
}

TEST(FindPlan, CountsWhatACpuOffloadsInItsOneMemory) {
  JobSpec job = JobThatHasToOffload();
  job.layout.head_chunk_tokens = 0;
  job.cluster.device.backend = BackendKind::kCpu;
  job.layout.offload_optimizer = OffloadDevice::kCpu;
  job.cluster.device.memory_bytes = int64_t{1} << 40;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t both = plan->stages[0].memory.total_bytes() + plan->host_bytes();
  job.cluster.device.memory_bytes = both;
  EXPECT_TRUE(FindPlan(job, Purpose::kRun).ok());
  job.cluster.device.memory_bytes = both - 1;
  EXPECT_THAT(FindPlan(job, Purpose::kRun).status().message(),
              HasSubstr("whose memory is the host's"));
}

TEST(FindPlan, PairsZeroBubblesWithRecomputeAtItsPriceInTime) {
  JobSpec job = SampleJob();
  job.layout.pp = 4;
  job.layout.layers_per_stage = {2, 1, 1, 2};
  job.layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
  job.layout.recompute = Recompute::kNone;
  const auto keeps = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(keeps.ok()) << keeps.status();
  job.layout.recompute = Recompute::kFull;
  const auto makes = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(makes.ok()) << makes.status();
  EXPECT_EQ(makes->layout.pp_schedule, ScheduleKind::kZeroBubbleH1);
  EXPECT_EQ(makes->layout.recompute, Recompute::kFull);
  EXPECT_GT(makes->time.total_s(), keeps->time.total_s());
  job.layout.recompute.reset();
  const auto free = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(free->layout.recompute, Recompute::kNone) << "all of it fits";
}

TEST(PlanFor, IsFindPlansAnswerForTheSameLayout) {
  const JobSpec job = SampleJob();
  const auto found = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto plan = PlanFor(job, found->layout, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout, found->layout);
  EXPECT_EQ(plan->time.total_s(), found->time.total_s());
  EXPECT_EQ(plan->peak_bytes(), found->peak_bytes());
  EXPECT_EQ(plan->bubble_fraction, found->bubble_fraction);
  EXPECT_TRUE(plan->rejections.empty());
  EXPECT_EQ(plan->counts.points, 1);
}

TEST(PlanFor, RefusesWhatBreaksARuleAndWhatDoesNotFit) {
  JobSpec job = SampleJob();
  const Layout broken = {.tp = 3, .micro_batch_size = 16};
  EXPECT_EQ(PlanFor(job, broken, Purpose::kRun).status().code(),
            absl::StatusCode::kInvalidArgument);
  job.cluster.device.memory_bytes = int64_t{300} << 20;
  const auto misfit = PlanFor(job, {.micro_batch_size = 16}, Purpose::kRun);
  EXPECT_EQ(misfit.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(misfit.status().message()),
      StartsWith(
          "does not fit: dp=1 tp=1 pp=1 micro_batch_size=16 gradient_accumulation_steps=1 needs"));
}

// Whoever asks without having validated a job first.
TEST(PlanFor, RefusesAPrecisionThatTheDeviceDoesNotOffer) {
  Question question = QuestionOf(SampleJob());
  question.numerics.precision = Precision::kBf16;
  question.cluster.device.peak_flops_per_s = {1e12, 0, 0};
  const std::string refusal =
      absl::StrCat("bf16 is not offered by ", question.cluster.device.name, "; use fp32");
  for (const Purpose purpose : {Purpose::kRun, Purpose::kEstimate}) {
    const Layout layout = {.micro_batch_size = 16};
    EXPECT_EQ(PlanFor(question, layout, purpose).status(), absl::InvalidArgumentError(refusal));
    EXPECT_EQ(FindPlan(question, {}, purpose).status(), absl::InvalidArgumentError(refusal));
  }
}

TEST(PlanFor, ListsWhatEveryStageHolds) {
  JobSpec job = SampleJob();
  const Layout layout = {.dp = 2, .pp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 4};
  const auto plan = PlanFor(job, layout, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 2U);
  EXPECT_EQ(plan->stages[1].blocks.begin, 3);
  EXPECT_EQ(plan->stages[1].blocks.end, 6);
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto stage = static_cast<size_t>(layout.grid().CoordinatesOf(rank).pp);
    EXPECT_EQ(PlanRankMemory(job.model, job.batch(), layout, rank, {}).total_bytes(),
              plan->stages[stage].layout_bytes())
        << "rank " << rank;
  }
  // Two nearly equal stages, four microbatches: (p - 1) / (m + p - 1).
  EXPECT_NEAR(plan->bubble_fraction, 0.2, 0.03);
}

TEST(PlanFor, CountsTheScratchThatAGpuComputesAttentionIn) {
  JobSpec job = SampleJob();
  job.cluster.device.backend = BackendKind::kCuda;
  job.cluster.device.peak_flops_per_s.bf16 = 100e9;
  job.training.mixed_precision = Precision::kBf16;
  const Layout layout = {.dp = 2, .pp = 2, .micro_batch_size = 4, .gradient_accumulation_steps = 2};
  const auto bytes = [&](bool deterministic) {
    job.deterministic = deterministic;
    const auto plan = PlanFor(job, layout, Purpose::kRun);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const int64_t listed =
        PlanRankMemory(job.model, job.batch(), layout, 0, job.numerics()).total_bytes();
    EXPECT_EQ(plan->stages.front().layout_bytes(), listed);
    return listed;
  };
  EXPECT_GT(bytes(false), bytes(true));
}

TEST(FindPlan, SearchesALargeModelOnManySlotsInWellUnderTwoSeconds) {
  const JobSpec job = LargeJob();
  const std::clock_t start = std::clock();
  const auto plan = FindPlan(job, Purpose::kRun);
  const double cpu_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->counts.points, 500);
  EXPECT_LT(cpu_s, 2);  // 0.1 s in a release build; sanitizers are slower
  EXPECT_LE(plan->peak_bytes(), plan->usable_bytes);
}

}  // namespace
}  // namespace weft
