// Packed documents: a sample of several trains what they train alone, on any layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

constexpr char kEnd = '\0';

// One sample a step, no clipping: losses and gradients as they are.
JobSpec OneSampleJob(Architecture architecture, const std::string& folder) {
  JobSpec job = SmallJob(folder);
  if (architecture == Architecture::kLlama) {
    SetArchitecture(architecture, job.model);
    job.model.num_kv_heads = 2;
    job.model.ffn_size = 96;
  }
  job.model.max_positions = 700;
  job.data.split = 0;
  job.data.valid.clear();
  job.validation = {};
  job.training.global_batch_size = 1;
  job.training.steps = 1;
  job.training.gradient_clipping = 0;
  return job;
}

TrainingOutcome TrainOn(JobSpec job, const std::string& tokens, const TestFolder& folder,
                        const std::string& name) {
  const std::string path = folder.path() + "/" + name + ".txt";
  std::ofstream(path, std::ios::binary) << tokens;
  job.data.train = {{path}};
  job.training.seq_len = std::ssize(tokens) - 1;
  return TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 1, job), folder.Make(name));
}

// Letters, and the mark at the end.
std::string Document(int64_t tokens, uint32_t seed) {
  std::string text;
  for (uint32_t state = seed; std::ssize(text) + 1 < tokens;) {
    state = state * 1664525 + 1013904223;
    text.push_back(static_cast<char>('a' + (state >> 16) % 26));
  }
  text.push_back(kEnd);
  return text;
}

using Tensors64 = std::map<std::string, std::vector<double>>;

void AddTimes(double factor, const std::map<std::string, std::vector<float>>& tensors,
              Tensors64& sums) {
  for (const auto& [name, values] : tensors) {
    sums[name].resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      sums[name][i] += factor * static_cast<double>(values[i]);
    }
  }
}

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

class PackedDocuments : public testing::TestWithParam<Architecture> {};

// Documents of less than, about and more than one of attention's tiles. The loss of the sample is
// the mean over its tokens, so it is theirs weighted by their tokens; gradients likewise.
TEST_P(PackedDocuments, TrainWhatTheyTrainAlone) {
  const TestFolder folder;
  const std::vector<std::string> documents = {Document(130, 1), Document(271, 2), Document(199, 3)};
  const std::string all = documents[0] + documents[1] + documents[2] + "z";
  JobSpec alone = OneSampleJob(GetParam(), folder.path());
  double loss = 0;
  Tensors64 gradients;
  for (size_t i = 0, begin = 0; i < documents.size(); begin += documents[i++].size()) {
    // The token behind a document is its last target.
    const TrainingOutcome outcome = TrainOn(alone, all.substr(begin, documents[i].size() + 1),
                                            folder, absl::StrCat("alone", i));
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    const double share = static_cast<double>(documents[i].size()) / 600;
    loss += share * outcome.losses().front();
    AddTimes(share, outcome.gradients, gradients);
  }
  JobSpec packed = alone;
  packed.data.eos_token_id = kEnd;
  packed.data.reset_attention_mask = true;
  packed.data.reset_position_ids = GetParam() == Architecture::kGpt2;
  const TrainingOutcome outcome = TrainOn(packed, all, folder, "packed");
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_NEAR(outcome.losses().front(), loss, 1e-6 * loss);
  Tensors64 differences = gradients;
  AddTimes(-1, outcome.gradients, differences);
  double whole = 0;
  for (const auto& [name, values] : gradients) whole = std::hypot(whole, Norm(values));
  for (const auto& [name, values] : gradients) {
    EXPECT_LT(Norm(differences[name]), 2e-6 * std::max(Norm(values), 1e-3 * whole)) << name;
  }
  // It is the mask that makes it so.
  const TrainingOutcome crossing = TrainOn(alone, all, folder, "crossing");
  EXPECT_GT(std::abs(crossing.losses().front() - loss), 1e-5 * loss);
}

TEST(PackedDocuments, LearnedPositionsGoOnUnlessTheyAreReset) {
  const TestFolder folder;
  const std::string all = Document(130, 1) + Document(70, 2) + "z";
  JobSpec job = OneSampleJob(Architecture::kGpt2, folder.path());
  job.data.eos_token_id = kEnd;
  job.data.reset_attention_mask = true;
  const auto trained_positions = [&](bool reset) {
    job.data.reset_position_ids = reset;
    const TrainingOutcome outcome = TrainOn(job, all, folder, absl::StrCat("reset", reset));
    const std::vector<float>& gradient = outcome.gradients.at("embed.positions.weight");
    const int64_t width = job.model.hidden_size;
    int64_t rows = 0;
    for (int64_t row = 0; row * width < std::ssize(gradient); ++row) {
      rows += gradient[static_cast<size_t>(row * width)] != 0 ? 1 : 0;
    }
    return rows;
  };
  EXPECT_EQ(trained_positions(false), 200);
  EXPECT_EQ(trained_positions(true), 130);
}

INSTANTIATE_TEST_SUITE_P(Trainer, PackedDocuments,
                         testing::Values(Architecture::kGpt2, Architecture::kLlama),
                         [](const auto& tested) { return WordOf(tested.param).data(); });

struct DocumentsCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  int virtual_stages = 1;
};
void PrintTo(const DocumentsCase& c, std::ostream* out) {
  *out << "dp" << c.dp << " tp" << c.tp << " pp" << c.pp << " " << WordOf(c.schedule).data();
}

class PackedDocumentsOnAnyLayout : public testing::TestWithParam<DocumentsCase> {};

// Every stage has to know where documents start, of the microbatch at hand.
TEST_P(PackedDocumentsOnAnyLayout, TrainAsOnASingleRankInThePlannedMemory) {
  const DocumentsCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.data.reset_position_ids = true;
  job.training.steps = 5;
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 8, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, 1, job);
  layout.virtual_stages = c.virtual_stages;
  const TrainingOutcome spread = TrainWith(job, layout, folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
  EXPECT_LT(RelativeDifference(spread.grad_norms(), single.grad_norms()), 1e-5);
  EXPECT_EQ(spread.allocated_bytes, spread.planned_bytes);
}

INSTANTIATE_TEST_SUITE_P(Trainer, PackedDocumentsOnAnyLayout,
                         testing::Values(DocumentsCase{2, 2, 1, k1f1b},
                                         DocumentsCase{1, 1, 4, k1f1b},
                                         DocumentsCase{1, 1, 3, ScheduleKind::kZeroBubbleH1},
                                         DocumentsCase{1, 1, 2, ScheduleKind::kInterleaved, 2}));

}  // namespace
}  // namespace weft
