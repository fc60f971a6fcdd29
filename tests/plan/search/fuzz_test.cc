// Absurd models and machines: a plan that keeps every rule, or a refusal that a person can act on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/explain/front.h"
#include "plan/search/pricer.h"
#include "plan/search/search.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/search/random_question.h"

namespace weft {
namespace {

// A model and a machine that pass their own checks and little else.
Question AbsurdQuestion(Dice& dice) {
  Question question = RandomQuestion(dice);
  ModelShape& model = question.model;
  model.num_heads = dice.Of<int64_t>({1, 3, 7, 13, 64, 96});
  model.num_kv_heads = model.num_heads;
  if (model.architecture == Architecture::kLlama && dice.Chance(50)) model.num_kv_heads = 1;
  model.head_dim = dice.Of<int64_t>({2, 10, 64, 128});
  model.hidden_size = model.num_heads * model.head_dim;
  if (model.architecture == Architecture::kLlama && dice.Chance(20)) model.hidden_size = 1022;
  model.ffn_size = dice.Of<int64_t>({1, 17, 1000, 53248});
  model.num_blocks = dice.Of<int64_t>({1, 2, 31, 97, 126});
  model.vocab_size = dice.Of<int64_t>({1, 31, 50257, 256000});
  model.max_positions = int64_t{1} << 20;
  question.batch.seq_len = dice.Of<int64_t>({1, 2, 97, 4096, int64_t{1} << 20});
  question.batch.global_batch_size = dice.Of<int64_t>({1, 7, 97, 2048, 5040});
  Cluster& cluster = question.cluster;
  cluster.nodes = dice.Of<int>({1, 2, 7, 97, 1009, 12500});
  cluster.slots_per_node = dice.Of<int>({1, 3, 7, 8});
  cluster.device.memory_bytes = int64_t{1} << dice.Of<int>({20, 27, 34, 37, 50});
  cluster.device.library_bytes = cluster.device.memory_bytes / 10;
  if (dice.Chance(20)) cluster.inter_node.bytes_per_s = 1;
  if (dice.Chance(10)) cluster.intra_node.bytes_per_s = 1e15;
  return question;
}

void ExpectSound(const Question& question, const Plan& plan) {
  const absl::Status rules =
      CheckLayout(question.model, question.cluster, question.batch, plan.layout);
  EXPECT_TRUE(rules.ok()) << rules;
  double sum_s = 0;
  for (const double term_s : plan.time.seconds) {
    EXPECT_TRUE(std::isfinite(term_s));
    EXPECT_GE(term_s, 0);
    sum_s += term_s;
  }
  EXPECT_NEAR(sum_s, plan.time.total_s(), 1e-9 * sum_s);
  EXPECT_GT(plan.goodput, 0);
  EXPECT_LE(plan.goodput, 1);
  for (const StageMemory& stage : plan.stages) {
    for (const int64_t bytes : stage.memory.bytes) EXPECT_GE(bytes, 0);
    EXPECT_LE(stage.memory.total_bytes(), question.cluster.device.memory_bytes);
  }
  for (const Rejection& rejection : plan.rejections) {
    EXPECT_TRUE(std::isfinite(rejection.time.total_s())) << LayoutText(rejection.layout);
    EXPECT_GE(rejection.memory_bytes, 0);
  }
}

// Counts what the questions of some seeds came to.
struct Answers {
  int plans = 0, refusals = 0;
};

Answers AskAbsurdly(uint32_t first, uint32_t last) {
  Answers answers;
  for (uint32_t seed = first; seed <= last; ++seed) {
    Dice dice(seed);
    const Question question = AbsurdQuestion(dice);
    if (!CheckModel(question.model).ok() || !CheckCluster(question.cluster).ok()) continue;
    const LayoutSpec fixed = RandomConstraints(dice);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const absl::StatusOr<Plan> plan = FindPlan(question, fixed, Purpose::kEstimate);
    if (plan.ok()) {
      ++answers.plans;
      ExpectSound(question, *plan);
      continue;
    }
    ++answers.refusals;
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status()) || absl::IsFailedPrecondition(plan.status()))
        << plan.status();
    const std::string message(plan.status().message());
    EXPECT_TRUE(absl::StrContains(message, "; use ") || absl::StrContains(message, "; set ") ||
                absl::StrContains(message, "; lower ") ||
                absl::StrContains(message, "; name each "))
        << message;
  }
  return answers;
}

TEST(FindPlanFuzz, PlansOrRefusesWithSomethingToDo) {
  const Answers answers = AskAbsurdly(1, 12);
  EXPECT_GT(answers.plans, 1);
  EXPECT_GT(answers.refusals, 2);
}

TEST(FindPlanFuzz, PlansOrRefusesWithSomethingToDoOfManyMoreQuestions) {
  const Answers answers = AskAbsurdly(13, 120);
  EXPECT_GT(answers.plans, 15);
  EXPECT_GT(answers.refusals, 24);
}

double ObjectiveOf(const absl::StatusOr<Plan>& plan) {
  return plan->time.total_s() / plan->goodput;
}

// Returns how many plans were held against those of a better machine.
int HoldAgainstBetterMachines(uint32_t first, uint32_t last) {
  int compared = 0;
  for (uint32_t seed = first; seed <= last; ++seed) {
    Dice dice(seed);
    Question question = RandomQuestion(dice);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const absl::StatusOr<Plan> plan = FindPlan(question, {}, Purpose::kEstimate);
    if (!plan.ok()) continue;
    ++compared;
    const double allowed_s = ObjectiveOf(plan) * (1 + 1e-9);
    Question roomier = question;
    roomier.cluster.device.memory_bytes *= 2;
    EXPECT_LE(ObjectiveOf(FindPlan(roomier, {}, Purpose::kEstimate)), allowed_s);
    Question faster = question;
    faster.cluster.inter_node.bytes_per_s *= 2;
    faster.cluster.intra_node.bytes_per_s *= 2;
    EXPECT_LE(ObjectiveOf(FindPlan(faster, {}, Purpose::kEstimate)), allowed_s);
  }
  return compared;
}

TEST(FindPlan, IsNeverSlowerWithMoreMemoryOrFasterLinks) {
  EXPECT_GT(HoldAgainstBetterMachines(1, 12), 3);
}

TEST(FindPlan, IsNeverSlowerOnBetterMachinesInManyMoreQuestions) {
  EXPECT_GT(HoldAgainstBetterMachines(13, 100), 30);
}

// One pricer answers for the whole front: what it keeps must not depend on nodes and memory.
TEST(Pricer, SolvesForOtherNodesAndAnotherMemoryAsANewOneDoes) {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    Dice dice(seed);
    Question question = RandomQuestion(dice);
    Pricer kept(question);
    for (const int times : {1, 2, 3}) {
      question.cluster.nodes *= times;
      question.cluster.device.memory_bytes = question.cluster.device.memory_bytes / 3 * times;
      Pricer fresh(question);
      const auto known = Solve(kept, {}, Purpose::kEstimate, Wanted::kFitting);
      const auto anew = Solve(fresh, {}, Purpose::kEstimate, Wanted::kFitting);
      ASSERT_TRUE(known.ok() && anew.ok());
      ASSERT_EQ(known->fitting.size(), anew->fitting.size()) << "seed " << seed;
      for (size_t i = 0; i < anew->fitting.size(); ++i) {
        ++compared;
        EXPECT_EQ(known->fitting[i].layout, anew->fitting[i].layout) << "seed " << seed;
        EXPECT_EQ(known->fitting[i].objective_s, anew->fitting[i].objective_s) << "seed " << seed;
        EXPECT_EQ(known->fitting[i].peak.memory.bytes, anew->fitting[i].peak.memory.bytes);
      }
    }
  }
  EXPECT_GT(compared, 100);
}

void ExpectAlike(const std::vector<FrontPoint>& front, const std::vector<FrontPoint>& other) {
  ASSERT_EQ(front.size(), other.size());
  for (size_t i = 0; i < front.size(); ++i) {
    EXPECT_EQ(front[i].layout, other[i].layout);
    EXPECT_EQ(front[i].time.seconds, other[i].time.seconds);
    EXPECT_EQ(front[i].goodput, other[i].goodput);
    EXPECT_EQ(front[i].peak_bytes, other[i].peak_bytes);
  }
}

TEST(ParetoFront, BeginsWithThePlanAndHoldsNoPointThatAnotherBeatsInEverything) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Dice dice(seed);
    const Question question = RandomQuestion(dice);
    const std::vector<FrontPoint> front = ParetoFront(question, {}, Purpose::kEstimate);
    const absl::StatusOr<Plan> plan = FindPlan(question, {}, Purpose::kEstimate);
    ASSERT_EQ(front.empty(), !plan.ok()) << "seed " << seed;
    if (front.empty()) continue;
    EXPECT_EQ(front.front().layout, plan->layout) << "seed " << seed;
    EXPECT_EQ(front.front().time.seconds, plan->time.seconds) << "seed " << seed;
    ExpectAlike(ParetoFront(question, {}, Purpose::kEstimate, *plan), front);
    for (size_t i = 1; i < front.size(); ++i) {
      EXPECT_NE(LayoutText(front[i].layout), LayoutText(front[i - 1].layout)) << "seed " << seed;
      // Slower than the one before: so it saves memory or devices.
      const bool saves_memory = front[i].peak_bytes < front[0].peak_bytes;
      EXPECT_TRUE(saves_memory || front[i].ranks < front[0].ranks) << "seed " << seed;
      EXPECT_GE(front[i].time.total_s() / front[i].goodput,
                front[i - 1].time.total_s() / front[i - 1].goodput);
    }
  }
}

// Between the halves of a node as well.
TEST(ParetoFront, HoldsTheFastestUnderEveryNumberOfSlotsAndOfFewNodes) {
  int limits = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    Dice dice(seed);
    Question question = RandomQuestion(dice);
    const std::vector<FrontPoint> front = ParetoFront(question, {}, Purpose::kEstimate);
    const auto hold = [&](const Question& limited) {
      const absl::StatusOr<Plan> plan = FindPlan(limited, {}, Purpose::kEstimate);
      if (!plan.ok()) return;
      ++limits;
      double best_s = std::numeric_limits<double>::infinity();
      for (const FrontPoint& point : front) {
        if (point.ranks > limited.cluster.slots()) continue;
        best_s = std::min(best_s, point.time.total_s() / point.goodput);
      }
      EXPECT_LE(best_s, ObjectiveOf(plan) * (1 + 1e-9))
          << "seed " << seed << ", " << limited.cluster.slots() << " slots";
    };
    for (Question fewer = question; fewer.cluster.nodes > 1;) {
      --fewer.cluster.nodes;
      hold(fewer);
    }
    question.cluster.nodes = 1;
    for (; question.cluster.slots_per_node > 1; --question.cluster.slots_per_node) hold(question);
  }
  EXPECT_GT(limits, 20);
}

// A million searches would take minutes: what the best leaves free is not asked about.
TEST(ParetoFront, IsOfFewSearchesWhereAPlanUsesFewOfManySlots) {
  int fronts = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Dice dice(seed);
    Question question = RandomQuestion(dice);
    question.cluster.nodes = 1;
    question.cluster.slots_per_node = 1'000'000;
    const std::vector<FrontPoint> front = ParetoFront(question, {}, Purpose::kEstimate);
    if (front.empty() || front.front().ranks > 64) continue;
    ++fronts;
    question.cluster.slots_per_node = front.front().ranks - 1;
    if (question.cluster.slots_per_node == 0) continue;
    const absl::StatusOr<Plan> plan = FindPlan(question, {}, Purpose::kEstimate);
    if (!plan.ok()) continue;
    const auto is_it = [&](const FrontPoint& point) { return point.layout == plan->layout; };
    EXPECT_TRUE(std::any_of(front.begin(), front.end(), is_it)) << "seed " << seed;
  }
  EXPECT_GT(fronts, 3);
}

}  // namespace
}  // namespace weft
