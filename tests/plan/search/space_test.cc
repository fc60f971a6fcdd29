#include "plan/search/space.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/search/pricer.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/search/random_question.h"

namespace weft {
namespace {

// A machine and a batch that all numbers can be tried on.
Question TinyQuestion(Dice& dice) {
  Question question = RandomQuestion(dice);
  question.model.num_blocks = dice.Between(1, 5);
  question.cluster.nodes = 1;
  question.cluster.slots_per_node = dice.Of<int>({1, 2, 4, 6});
  question.cluster.cores_per_node = 0;
  question.batch.global_batch_size = dice.Of<int64_t>({1, 4, 6});
  return question;
}

// The lattice leaves out layouts on purpose: pipelines of one stage differ in name alone, ZeRO
// needs ranks to shard over, chunks are parts of a stage's blocks, and their rounds are full.
bool IsListed(const Question& question, const Layout& layout) {
  const int64_t most = (question.model.num_blocks + layout.pp - 1) / layout.pp;
  return (layout.pp > 1 || layout.pp_schedule == ScheduleKind::kOneForwardOneBackward) &&
         (layout.data_group() > 1 || layout.zero_stage == 0) && most % layout.virtual_stages == 0 &&
         (layout.virtual_stages == 1 || layout.gradient_accumulation_steps % layout.pp == 0);
}

int64_t CountByTrying(const Question& question) {
  const int slots = question.cluster.slots();
  const int64_t global = question.batch.global_batch_size;
  int64_t count = 0;
  Layout layout;
  const auto try_rest = [&] {
    for (int zero = 0; zero <= 3; ++zero) {
      layout.zero_stage = zero;
      for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                      ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1}) {
        layout.pp_schedule = kind;
        for (int chunks = 1; chunks <= question.model.num_blocks; ++chunks) {
          layout.virtual_stages = chunks;
          for (const bool shared : {false, true}) {
            layout.sequence_parallel = shared;
            if (!IsListed(question, layout)) continue;
            if (!CheckLayout(question.model, question.cluster, question.batch, layout).ok()) {
              continue;
            }
            const bool may_balance = layout.pp > 1 && layout.pp < question.model.num_blocks &&
                                     kind != ScheduleKind::kInterleaved;
            count +=
                2 * (may_balance ? 2 * 3 : 3);  // places of the optimizer, splits, recompute modes
          }
        }
      }
    }
  };
  for (layout.tp = 1; layout.tp <= slots; ++layout.tp) {
    for (layout.cp = 1; layout.cp * layout.tp <= slots; ++layout.cp) {
      for (layout.pp = 1; layout.pp * layout.cp * layout.tp <= slots; ++layout.pp) {
        for (layout.dp = 1; layout.world_size() <= slots; ++layout.dp) {
          for (layout.ep = 1; layout.ep <= layout.data_group(); ++layout.ep) {
            for (layout.micro_batch_size = 1; layout.micro_batch_size <= global;
                 ++layout.micro_batch_size) {
              layout.gradient_accumulation_steps = global / layout.dp / layout.micro_batch_size;
              if (layout.gradient_accumulation_steps >= 1) try_rest();
            }
          }
        }
      }
    }
  }
  return count;
}

TEST(Space, CountsEveryLayoutThatKeepsTheRulesOnce) {
  int64_t points = 0;
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    Dice dice(seed);
    const Question question = TinyQuestion(dice);
    const Space space(question, {}, Purpose::kEstimate);
    const int64_t counted = space.CountPoints();
    EXPECT_EQ(counted, CountByTrying(question)) << "seed " << seed;
    points += counted;
  }
  EXPECT_GT(points, 3000);
}

TEST(Space, KeepsToWhatIsFixed) {
  Dice dice(3);
  const Question question = TinyQuestion(dice);
  const int64_t all = Space(question, {}, Purpose::kEstimate).CountPoints();
  int64_t sum = 0;
  for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    sum += Space(question, {.recompute = mode}, Purpose::kEstimate).CountPoints();
  }
  EXPECT_EQ(sum, all);
  sum = 0;
  for (int pp = 1; pp <= question.cluster.slots(); ++pp) {
    sum += Space(question, {.pp = pp}, Purpose::kEstimate).CountPoints();
  }
  EXPECT_EQ(sum, all);
  EXPECT_EQ(Space(question, {.dp = 5}, Purpose::kEstimate).CountPoints(), 0);
}

TEST(Space, TakesFixedChunksOfTheHead) {
  Dice dice(3);
  const Question question = TinyQuestion(dice);
  const Space free(question, {}, Purpose::kEstimate);
  EXPECT_TRUE(free.has_free_head());
  EXPECT_EQ(free.Base(1, 1).head_chunk_tokens, 0);
  EXPECT_EQ(free.LeastHeadChunk(), 1);
  const Space fixed(question, {.head_chunk_tokens = 3}, Purpose::kEstimate);
  EXPECT_FALSE(fixed.has_free_head());
  EXPECT_EQ(fixed.Base(1, 1).head_chunk_tokens, 3);
  EXPECT_EQ(fixed.LeastHeadChunk(), 3);
}

TEST(Override, PutsWhatIsFixedAnewInTheOldOnesPlace) {
  const LayoutSpec job = {.dp = 4, .tp = 2, .micro_batch_size = 1};
  const LayoutSpec both = Override(job, {.tp = 4, .pp = 2});
  EXPECT_EQ(both, (LayoutSpec{.dp = 4, .tp = 4, .pp = 2, .micro_batch_size = 1}));
}

// The search's cuts by memory rest on this.
TEST(Pricer, MemoryNeverShrinksWithLargerMicrobatchesOrLongerSequences) {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    Question question = RandomQuestion(dice);
    const int pp =
        static_cast<int>(dice.Between(1, std::min<int64_t>(4, question.model.num_blocks)));
    Layout layout{.dp = 2, .pp = pp, .micro_batch_size = 1, .gradient_accumulation_steps = 8};
    layout.recompute =
        dice.Of<Recompute>({Recompute::kNone, Recompute::kSelective, Recompute::kFull});
    layout.pp_schedule = pp == 1 ? ScheduleKind::kOneForwardOneBackward
                                 : dice.Of<ScheduleKind>({ScheduleKind::kOneForwardOneBackward,
                                                          ScheduleKind::kZeroBubbleH1});
    Layout larger = layout;
    larger.micro_batch_size = 2;
    larger.gradient_accumulation_steps = 4;
    Pricer pricer(question);
    // Twice as many slots of half the size: rounding up costs them a little more.
    constexpr double kPadding = 1.125;
    EXPECT_LE(static_cast<double>(pricer.PeakOf(layout).total_bytes()),
              kPadding * static_cast<double>(pricer.PeakOf(larger).total_bytes()))
        << "seed " << seed << " " << LayoutText(layout);
    Question longer = question;
    longer.batch.seq_len *= 2;
    Pricer of_longer(longer);
    EXPECT_LE(pricer.PeakOf(layout).total_bytes(), of_longer.PeakOf(layout).total_bytes())
        << "seed " << seed << " " << LayoutText(layout);
    ++compared;
  }
  EXPECT_EQ(compared, 200);
}

// So does this: where whole sequences fit, those that tp shares do.
TEST(Pricer, SequencesThatTpSharesHoldNoMore) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    Dice dice(seed);
    const Question question = RandomQuestion(dice);
    const Space space(question, {}, Purpose::kEstimate);
    Layout layout = space.Base(dice.Of(space.tps()), dice.Of(space.cps()));
    if (!layout.sequence_parallel) continue;
    layout.pp = static_cast<int>(dice.Between(1, question.model.num_blocks));
    layout.micro_batch_size = dice.Between(1, 4);
    layout.gradient_accumulation_steps = dice.Between(1, 8);
    layout.recompute = dice.Of(space.recomputes());
    layout.pp_schedule = dice.Of<ScheduleKind>(
        {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe, ScheduleKind::kZeroBubbleH1});
    Layout whole = layout;
    whole.sequence_parallel = false;
    Pricer pricer(question);
    constexpr int64_t kRounding = 16 * 512;  // of small buffers to their alignment
    EXPECT_LE(pricer.PeakOf(layout).total_bytes(), pricer.PeakOf(whole).total_bytes() + kRounding)
        << "seed " << seed << " " << LayoutText(layout);
  }
}

}  // namespace
}  // namespace weft
