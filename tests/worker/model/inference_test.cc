// One process computes again what a run has computed, and reads a sequence on token by token.
#include "worker/model/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_json.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights_reader.h"
#include "data/sampling.h"
#include "process/version.h"
#include "tests/places.h"
#include "tests/worker/backend/same_bits.h"
#include "tests/worker/rank_threads.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/model/sampling.h"
#include "worker/process/inference_session.h"

namespace weft {
namespace {

// The small GPT-2; a Llama with everything that sets it apart; one whose blocks differ.
JobSpec JobOf(Architecture architecture, const std::string& folder) {
  JobSpec job = SmallJob(folder);
  job.training.steps = 8;
  job.data.split = 0.1;
  job.validation = {.interval = 8, .steps = 2};
  if (architecture == Architecture::kGpt2) {
    job.data.valid.clear();  // a held-out part of the training files, for one of the two
    return job;
  }
  job.model = {.architecture = Architecture::kLlama,
               .vocab_size = 259,
               .hidden_size = 64,
               .num_blocks = 3,
               .num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 24,
               .ffn_size = 176,
               .max_positions = 48,
               .norm_eps = 1e-6,
               .tied_embeddings = false,
               .rope_scaling = {.factor = 4, .original_max_positions = 16},
               .attention_bias = true};
  if (architecture == Architecture::kGemma3) {
    SetArchitecture(architecture, job.model);
    job.model.attention_bias = false;
    job.model.tied_embeddings = true;
    job.model.window = 5;
    job.model.sliding_rope_theta = 100;
    job.model.query_scalar = 30;
    using enum AttentionSpan;
    job.model.spans = {kFull, kSliding, kSliding};
  }
  if (architecture == Architecture::kGlm4) {
    SetArchitecture(architecture, job.model);
    job.model.rotary_share = 0.5;
  }
  if (architecture == Architecture::kSmollm3) {
    SetArchitecture(architecture, job.model);
    job.model.attention_bias = false;
    job.model.window = 5;
    using enum AttentionSpan;
    job.model.spans = {kFull, kSliding, kSliding};
    job.model.turns = {true, false, true};
  }
  return job;
}

// The corpus' words as documents.
JobSpec PackedJobOf(Architecture architecture, const std::string& folder) {
  JobSpec job = JobOf(architecture, folder);
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.data.reset_position_ids = architecture == Architecture::kGpt2;
  return job;
}

struct Trained {
  double valid_loss = 0;
  std::string checkpoint;
  DataSpec data;
};

Trained TrainIn(const JobSpec& job, const Layout& layout, const std::string& run_folder) {
  const TrainingOutcome outcome = TrainWith(job, layout, run_folder);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  if (!outcome.status().ok() || outcome.committed.empty()) return {};
  return {*outcome.reports.front().back().valid_loss, outcome.committed.back(), job.data};
}

std::unique_ptr<Inference> Load(const Trained& trained, InferenceExtents extents, Device& device) {
  extents.masks_documents = trained.data.reset_attention_mask;
  const auto manifest = VerifyCheckpoint(trained.checkpoint);
  EXPECT_TRUE(manifest.ok() && manifest->model) << manifest.status();
  auto inference = Inference::Create(*manifest->model, extents, trained.data, device);
  EXPECT_TRUE(inference.ok()) << inference.status();
  const auto reader = WeightsReader::Open(trained.checkpoint, *manifest->model);
  EXPECT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*inference)->Load(*reader, {}), absl::OkStatus());
  return *std::move(inference);
}

struct Windows {
  std::vector<int32_t> ids, targets;
};

Windows HeldOut(const JobSpec& job, int64_t first, int64_t count) {
  const auto data = Dataset::Open(job, /*train=*/false);
  EXPECT_TRUE(data.ok()) << data.status();
  const auto length = static_cast<size_t>(job.training.seq_len);
  Windows windows;
  windows.ids.resize(static_cast<size_t>(count) * length);
  windows.targets.resize(windows.ids.size());
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i) * length;
    EXPECT_EQ(data->Sample(first + i, absl::MakeSpan(windows.ids).subspan(at, length),
                           absl::MakeSpan(windows.targets).subspan(at, length)),
              absl::OkStatus());
  }
  return windows;
}

// Validates as the trainer does, `batch` sequences at once: sums losses by global batch, then over
// those.
double ValidationLoss(const JobSpec& job, const Trained& trained, int64_t batch) {
  const auto device = MakeCpuDevice({});
  const int64_t sequences = job.validation.steps * job.training.global_batch_size;
  const auto inference = Load(trained, {.batch = batch, .seq_len = job.training.seq_len}, *device);
  double sum = 0, of_global_batch = 0;
  for (int64_t first = 0; first < sequences; first += batch) {
    const Windows windows = HeldOut(job, first, std::min(batch, sequences - first));
    const auto loss = inference->LossSum(windows.ids, windows.targets);
    EXPECT_TRUE(loss.ok()) << loss.status();
    of_global_batch += *loss;
    if ((first + batch) % job.training.global_batch_size != 0 && first + batch < sequences)
      continue;
    sum += std::exchange(of_global_batch, 0.0);
  }
  return sum / static_cast<double>(sequences * job.training.seq_len);
}

class AnyFamily : public testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(Models, AnyFamily,
                         testing::Values(Architecture::kGpt2, Architecture::kLlama,
                                         Architecture::kSmollm3, Architecture::kGemma3,
                                         Architecture::kGlm4),
                         [](const auto& each) { return std::string(WordOf(each.param)); });

TEST_P(AnyFamily, EvaluatesToTheRunsValidation) {
  const TestFolder folder;
  const JobSpec job = JobOf(GetParam(), folder.path());
  const Trained trained = TrainIn(job, MakeLayout(1, 1, 1, k1f1b, 4, job), folder.Make("run"));
  ASSERT_GT(trained.valid_loss, 0);
  ExpectTheSameLoss(ValidationLoss(job, trained, 4), trained.valid_loss);
  // Another cut of the same sequences sums in another order, the last batch is a short one.
  EXPECT_NEAR(ValidationLoss(job, trained, 5), trained.valid_loss, 1e-6);
}

TEST_P(AnyFamily, EvaluatesTheCheckpointOfAnyLayout) {
  const TestFolder folder;
  const JobSpec job = JobOf(GetParam(), folder.path());
  const Trained trained = TrainIn(job, MakeLayout(2, 2, 2, k1f1b, 2, job), folder.Make("run"));
  ASSERT_GT(trained.valid_loss, 0);
  EXPECT_NEAR(ValidationLoss(job, trained, 2) / trained.valid_loss, 1, 1e-6);
}

// Logits after each prefix of `ids` from the first `prompt` tokens on, which are read at once; the
// others follow one by one.
std::vector<std::vector<float>> LogitsAfter(const Trained& trained, absl::Span<const int32_t> ids,
                                            size_t prompt, Device& device) {
  const auto inference = Load(trained,
                              {.seq_len = static_cast<int64_t>(prompt),
                               .cached_positions = static_cast<int64_t>(ids.size())},
                              device);
  std::vector<std::vector<float>> all;
  for (size_t read = 0; read < ids.size();) {
    const size_t count = read == 0 ? prompt : 1;
    const auto logits = inference->Append(ids.subspan(read, count));
    EXPECT_TRUE(logits.ok()) << logits.status();
    all.emplace_back(logits->begin(), logits->end());
    read += count;
  }
  return all;
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

double CrossEntropy(const std::vector<float>& logits, int32_t target) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(target)]);
}

// The whole claim of a cache: wherever the prompt ends, what follows a prefix is what one pass over
// all of that prefix predicts.
void ExpectTokenByTokenAsInOnePass(const JobSpec& job, const TestFolder& folder) {
  const Trained trained = TrainIn(job, MakeLayout(1, 1, 1, k1f1b, 4, job), folder.Make("run"));
  const auto device = MakeCpuDevice({});
  const Windows windows = HeldOut(job, 0, 1);
  const absl::Span<const int32_t> ids = windows.ids;
  const auto one_by_one = LogitsAfter(trained, ids, 1, *device);
  for (const size_t prefix : {1, 2, 7, 31, 32}) {
    const auto at_once = LogitsAfter(trained, ids.subspan(0, prefix), prefix, *device);
    EXPECT_LT(Distance(one_by_one[prefix - 1], at_once.back()), 1e-6) << prefix;
    const auto from_there = LogitsAfter(trained, ids, prefix, *device);
    EXPECT_LT(Distance(from_there.back(), one_by_one.back()), 1e-6) << prefix;
  }
  // And that is what an evaluation makes of the sequence.
  const auto whole = Load(trained, {.seq_len = job.training.seq_len}, *device);
  const auto loss = whole->LossSum(windows.ids, windows.targets);
  ASSERT_TRUE(loss.ok());
  double sum = 0;
  for (size_t t = 0; t < ids.size(); ++t) sum += CrossEntropy(one_by_one[t], windows.targets[t]);
  EXPECT_NEAR(sum / *loss, 1, 1e-6);
}

TEST_P(AnyFamily, ReadsASequenceTokenByTokenAsInOnePass) {
  const TestFolder folder;
  ExpectTokenByTokenAsInOnePass(JobOf(GetParam(), folder.path()), folder);
}

// A model that has seen no other document behind a mark is asked nothing else.
TEST_P(AnyFamily, KeepsDocumentsApartAsTrainingDid) {
  const TestFolder folder;
  const JobSpec job = PackedJobOf(GetParam(), folder.path());
  ExpectTokenByTokenAsInOnePass(job, folder);
  Trained trained = TrainIn(job, MakeLayout(1, 1, 1, k1f1b, 4, job), folder.Make("again"));
  // Sums in another order.
  if (ElementsAreSummedAlone()) {
    EXPECT_DOUBLE_EQ(ValidationLoss(job, trained, 4), trained.valid_loss);
  } else {
    ExpectTheSameLoss(ValidationLoss(job, trained, 4), trained.valid_loss);
  }
  trained.data = {};
  EXPECT_GT(std::abs(ValidationLoss(job, trained, 4) - trained.valid_loss), 1e-4);
}

nlohmann::json Request(const std::string& checkpoint) {
  const auto model = ModelOfStepFolder(checkpoint);
  EXPECT_TRUE(model.ok()) << model.status();
  return {{"version", Version()},
          {"weights", checkpoint},
          {"model", nlohmann::json::parse(ModelJson(*model))},
          {"backend", "cpu"},
          {"threads", 1},
          {"documents",
           {{"bos_token_id", nullptr},
            {"eos_token_id", nullptr},
            {"reset_attention_mask", false},
            {"reset_position_ids", false}}},
          {"task", "generate"},
          {"ids", {116, 104, 101, 32}},
          {"max_tokens", 12},
          {"stop_ids", nlohmann::json::array()},
          {"vocabulary", 256},
          {"temperature", 0},
          {"top_k", 0},
          {"top_p", 1},
          {"seed", 0}};
}

struct Told {
  int exit_code = 0;
  std::vector<int32_t> ids;
  nlohmann::json last;
};

Told Tell(const nlohmann::json& request) {
  std::istringstream in(request.dump());
  std::ostringstream out;
  Told told;
  told.exit_code = RunInferenceSession(in, out, BinaryPath("/bin"));
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) {
    told.last = nlohmann::json::parse(line);
    if (told.last["event"] == "token") told.ids.push_back(told.last["id"]);
  }
  return told;
}

TEST_P(AnyFamily, GreedyGenerationIsTheArgmaxOfFullPasses) {
  const TestFolder folder;
  const JobSpec job = JobOf(GetParam(), folder.path());
  const Trained trained = TrainIn(job, MakeLayout(1, 2, 2, k1f1b, 2, job), folder.Make("run"));
  const Told told = Tell(Request(trained.checkpoint));
  ASSERT_EQ(told.exit_code, 0) << told.last;
  ASSERT_EQ(told.ids.size(), 12u);
  EXPECT_EQ(told.last["why"], "max_tokens");
  const auto device = MakeCpuDevice({});
  std::vector<int32_t> ids = {116, 104, 101, 32};
  for (const int32_t next : told.ids) {
    const auto logits = LogitsAfter(trained, ids, ids.size(), *device).back();
    EXPECT_EQ(NextToken(absl::MakeConstSpan(logits).subspan(0, 256), {.temperature = 0}, 0), next);
    ids.push_back(next);
  }
  // The same seed draws the same text, another one another.
  nlohmann::json warm = Request(trained.checkpoint);
  warm["temperature"] = 1;
  EXPECT_EQ(Tell(warm).ids, Tell(warm).ids);
  nlohmann::json other = warm;
  other["seed"] = 1;
  EXPECT_NE(Tell(warm).ids, Tell(other).ids);
}

TEST(InferenceSession, EndsWhereTheModelHasNoMorePositions) {
  const TestFolder folder;
  const JobSpec job = JobOf(Architecture::kGpt2, folder.path());
  const Trained trained = TrainIn(job, MakeLayout(1, 1, 1, k1f1b, 4, job), folder.Make("run"));
  nlohmann::json request = Request(trained.checkpoint);
  request["max_tokens"] = 10000;
  const Told told = Tell(request);
  ASSERT_EQ(told.exit_code, 0) << told.last;
  EXPECT_EQ(told.last["why"], "positions");
  // Each position predicts one token; the first 4 tokens were the prompt's.
  EXPECT_EQ(std::ssize(told.ids), job.model.max_positions - 4 + 1);
  request["max_tokens"] = std::ssize(told.ids);
  EXPECT_EQ(Tell(request).last["why"], "max_tokens");
  request["stop_ids"] = {255, told.ids[5]};
  const Told stopped = Tell(request);
  EXPECT_EQ(stopped.last["why"], "stop_id");
  EXPECT_THAT(stopped.ids, testing::Not(testing::Contains(told.ids[5])));
}

TEST(InferenceSession, RefusesByName) {
  const TestFolder folder;
  JobSpec job = JobOf(Architecture::kGpt2, folder.path());
  job.training.steps = 1;
  job.validation = {};
  const TrainingOutcome outcome =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 4, job), folder.Make("run"));
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  const std::string checkpoint = outcome.committed.back();
  const auto error = [](const nlohmann::json& request) {
    const Told told = Tell(request);
    EXPECT_EQ(told.exit_code, 1);
    EXPECT_EQ(told.last.value("event", ""), "error");
    return told.last.value("message", "");
  };
  nlohmann::json request = Request(checkpoint);
  request["ids"] = std::vector<int32_t>(1000, 1);
  EXPECT_THAT(error(request), testing::HasSubstr("the prompt has 1000 tokens"));
  request["ids"] = {1, 1000};
  EXPECT_THAT(error(request), testing::HasSubstr("the prompt holds id 1000"));
  request["ids"] = {-1};
  EXPECT_THAT(error(request), testing::HasSubstr("the prompt holds id -1"));
  request = Request(checkpoint);
  request["version"] = "0.0.0";
  EXPECT_THAT(error(request), testing::HasSubstr("install both from one build"));
  request = Request(checkpoint);
  request.erase("threads");
  EXPECT_THAT(error(request), testing::HasSubstr("request: "));
  request = Request(checkpoint);
  request["task"] = "juggle";
  EXPECT_THAT(error(request), testing::HasSubstr("juggle"));
  request = Request(checkpoint);
  request["model"].erase("num_heads");
  EXPECT_THAT(error(request), testing::HasSubstr("model: found no whole number at 'num_heads'"));
  request = Request(checkpoint);
  request["model"]["ffn_size"] = 48;
  EXPECT_THAT(error(request), testing::HasSubstr("mlp.up.weight is ["));
  // One bit of the shard.
  const std::string shard = checkpoint + "/" + ShardFileName(0);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(5000);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(5000);
  file.put(byte);
  file.close();
  EXPECT_THAT(error(Request(checkpoint)),
              testing::AllOf(testing::HasSubstr(ShardFileName(0)), testing::HasSubstr("xxh3")));
}

}  // namespace
}  // namespace weft
