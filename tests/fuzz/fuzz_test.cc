// Damaged job files, profiles, config.json, tokenizers, weights and command lines, handed to the
// real `weft`: whatever people type and files hold, it answers (tests/fuzz/trial.h says what that
// means). And damage that must not pass: an unknown key, a key twice, a number that is none.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/trial.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/saved_model.h"
#include "tests/places.h"

namespace weft {
namespace {

// weft plan has no job that could fail.
const std::set<int> kPlanExitCodes = {0, 2, 3};

std::string TextOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Nearly every key that there is.
constexpr char kFullJob[] = R"(job: {name: full, output_dir: out}
model:
  model_type: llama
  vocab_size: 512
  max_position_embeddings: 128
  hidden_size: 64
  num_hidden_layers: 4
  num_attention_heads: 4
  num_key_value_heads: 2
  intermediate_size: 96
  rms_norm_eps: 1.0e-5
  rope_theta: 10000
  initializer_range: 0.02
  tie_word_embeddings: false
  rope_scaling: {rope_type: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4,
                 original_max_position_embeddings: 64}
data:
  format: bytes
  train: [{path: corpus.txt, weight: 1}]
  split: 0.1
  bos_token_id: 0
  eos_token_id: 10
  reset_attention_mask: true
training:
  seq_len: 64
  global_batch_size: 16
  micro_batch_size: auto
  steps: 100
  gradient_clipping: 1.0
  mixed_precision: bf16
  seed: 42
optimizer:
  name: adamw
  lr: 1.0e-3
  betas: [0.9, 0.95]
  eps: 1.0e-8
  weight_decay: 0.1
  param_groups: [{params: ["*.bias", "*norm*"], weight_decay: 0}]
lr_scheduler: {type: cosine, warmup_steps: 10, decay_steps: 90, min_lr: 1.0e-5}
parallelism: {dp: auto, pp: auto, cp: 1, tp: auto, ep: 1, pp_schedule: 1f1b, zero_stage: auto}
checkpoint: {interval: 10, keep_latest_k: 2, folder: checkpoint}
fault_tolerance: {max_restarts: 3, heartbeat_timeout_seconds: 8}
comm: {init_timeout_seconds: 60, train_timeout_seconds: 100}
validation: {interval: 10, steps: 2}
metrics: {log_freq: 10}
cluster: {profile: cpu, nodes: 2, slots: 4, threads_per_worker: 1}
)";

std::vector<std::string> JobTexts() {
  std::vector<std::string> texts = {kGoodJob, kFullJob};
  for (const char* name : {"llama3-8b", "gpt2-124m", "quickstart"}) {
    std::string text = TextOf(SourcePath("/configs/jobs/") + name + ".yaml");
    const size_t at = text.find("../models");
    if (at != std::string::npos) text.replace(at, 9, SourcePath("/configs/models"));
    texts.push_back(text);
  }
  return texts;
}

// A plan that is shown is one: of finite numbers, of a step that takes time and memory.
void ExpectAPlan(const Answer& answer, bool json, const std::string& name) {
  if (answer.exit_code != 0) return;
  if (!json) {
    static const auto* const not_finite = new std::regex("(^|[^a-z_./])-?(nan|inf)([^a-z_./]|$)");
    EXPECT_FALSE(std::regex_search(answer.out, *not_finite)) << name << "\n" << answer.out;
    return;
  }
  const auto plan = nlohmann::json::parse(answer.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(plan.is_object()) << name;
  const auto& prediction = plan["prediction"];
  const auto& step_s = prediction["step_s"];
  const auto& peak_bytes = plan["memory"]["peak_bytes"];
  EXPECT_TRUE(step_s.is_number() && step_s > 0) << name << step_s << answer.out.substr(0, 2000);
  EXPECT_TRUE(peak_bytes.is_number() && peak_bytes > 0) << name << peak_bytes;
  for (const char* key : {"tokens_per_s", "mfu", "model_flops_per_s", "goodput_at_best_interval"}) {
    EXPECT_TRUE(prediction[key].is_number() && prediction[key] >= 0) << name << key << prediction;
  }
  for (const auto& [key, value] : plan["bill"].items()) {
    EXPECT_TRUE(value.is_number() && value >= 0) << name << ": bill." << key << " " << value;
  }
}

TEST(DamagedJobFiles, AreAnswered) {
  const JobFolder folder;
  const std::vector<std::string> texts = JobTexts();
  Campaign("job file", 250, [&](Random& random, const std::string& name) {
    const std::string text = Damaged(random.Of(absl::MakeConstSpan(texts)), random);
    const bool json = random.Once(2);
    Trial trial{.files = {{"job.yaml", text}},
                .arguments = {"plan", "job.yaml"},
                .exit_codes = kPlanExitCodes};
    if (!random.Once(4)) trial.arguments.emplace_back("--without-data");
    if (json) trial.arguments.emplace_back("--json");
    ExpectAPlan(Answered(folder, trial, name), json, name);
  });
}

TEST(DamagedProfiles, AreAnswered) {
  const JobFolder folder;
  folder.Write("job.yaml", JobTexts()[2]);
  folder.Write("small.yaml", kGoodJob);
  std::vector<std::string> texts;
  for (const char* name : {"cpu", "h100x8", "gb200-nvl72", "h200"}) {
    texts.push_back(TextOf(SourcePath("/configs/clusters/") + name + ".yaml"));
  }
  Campaign("profile", 120, [&](Random& random, const std::string& name) {
    const std::string text = Damaged(random.Of(absl::MakeConstSpan(texts)), random);
    const bool json = random.Once(2);
    Trial trial{.files = {{"lab.yaml", text}},
                .arguments = {"plan", random.Once(2) ? "job.yaml" : "small.yaml", "--without-data",
                              "--cluster", "./lab.yaml", "--set", "parallelism.dp=auto", "--set",
                              "parallelism.pp=auto"},
                .exit_codes = kPlanExitCodes};
    if (json) trial.arguments.emplace_back("--json");
    ExpectAPlan(Answered(folder, trial, name), json, name);
  });
}

// A Hugging Face directory of small weights.
class DamagedDirectory : public testing::Test {
 protected:
  DamagedDirectory() {
    SaveModel(folder_, SmallModel(430), "llmc");
    const Answer exported =
        Answered(folder_, {.arguments = {"export", "saved", "--hf", "hf"}, .exit_codes = {0}}, "");
    config_ = TextOf(folder_.path() + "/hf/config.json");
    weights_ = TextOf(folder_.path() + "/hf/model.safetensors");
    const auto tokenizer = nlohmann::json::parse(TextOf(kBpe + "/tokenizer.json"));
    tokenizers_ = {tokenizer.dump()};
    for (const auto& variant : nlohmann::json::parse(TextOf(kBpe + "/variants.json"))) {
      nlohmann::json changed = tokenizer;
      for (const auto& [pointer, value] : variant["changes"].items()) {
        changed[nlohmann::json::json_pointer(pointer)] = value;
      }
      tokenizers_.push_back(changed.dump(2));  // lines of its own: more kinds of damage
    }
  }

  // A call that reads all that there is.
  static std::vector<std::string> Call(Random& random) {
    if (random.Once(2)) {
      return {"eval",  "hf",      "--data", "corpus.txt", "--format",
              "bytes", "--steps", "2",      "--threads",  "1"};
    }
    return {"generate",     "hf", "--prompt",  "<|endoftext|>the work of <mask>",
            "--max-tokens", "3",  "--threads", "1"};
  }
  std::vector<Trial::File> Whole() const {
    return {{"hf/config.json", config_},
            {"hf/model.safetensors", weights_},
            {"hf/tokenizer.json", tokenizers_[0]}};
  }

  const std::string kBpe = SourcePath("/tests/data/bpe");
  const JobFolder folder_;
  std::string config_, weights_;
  std::vector<std::string> tokenizers_;
};

TEST_F(DamagedDirectory, IsAnswered) {
  const std::vector<std::string> configs = {
      config_, TextOf(SourcePath("/configs/models/gpt2-124m/config.json")),
      TextOf(SourcePath("/configs/models/llama3-8b/config.json"))};
  Campaign("directory", 100, [&](Random& random, const std::string& name) {
    std::vector<Trial::File> files = Whole();
    switch (random.Below(4)) {
      case 0:
        files[1].text = Damaged(weights_.substr(0, 1 + random.Below(weights_.size())), random);
        break;
      case 1: {
        const size_t header = std::min<size_t>(weights_.size(), 2000);
        files[1].text = Damaged(weights_.substr(0, header), random) + weights_.substr(header);
        break;
      }
      case 2:
        files[2].text = Damaged(random.Of(absl::MakeConstSpan(tokenizers_)), random);
        break;
      default:
        files[0].text = Damaged(random.Of(absl::MakeConstSpan(configs)), random);
    }
    Answered(folder_, {.files = files, .arguments = Call(random), .shows_text = false}, name);
  });
}

TEST_F(DamagedDirectory, OfAConfigIsPlanned) {
  std::vector<std::string> texts = {config_,
                                    TextOf(SourcePath("/configs/models/gpt2-124m/config.json")),
                                    TextOf(SourcePath("/configs/models/llama3-8b/config.json"))};
  folder_.Write("job.yaml",
                "job: {name: config}\nmodel: {path: hf}\n"
                "data: {format: bytes, train: [{path: corpus.txt}]}\n"
                "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n"
                "optimizer: {lr: 1.0e-3}\ncluster: {profile: h100x8}\n");
  Campaign("config.json", 80, [&](Random& random, const std::string& name) {
    const std::string text = Damaged(random.Of(absl::MakeConstSpan(texts)), random);
    const Trial trial{.files = {{"hf/config.json", text}},
                      .arguments = {"plan", "job.yaml", "--without-data", "--json"},
                      .exit_codes = kPlanExitCodes};
    ExpectAPlan(Answered(folder_, trial, name), true, name);
  });
}

// A run folder with a checkpoint, as weft run leaves it.
TEST(DamagedRuns, AreAnswered) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  std::filesystem::create_directory(folder.path() + "/run");
  std::filesystem::rename(folder.path() + "/saved", folder.path() + "/run/checkpoint");
  folder.Write("run/lock", "");
  const std::string model =
      "{model_type: llama, vocab_size: 256, max_position_embeddings: 40, hidden_size: 16, "
      "num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, "
      "intermediate_size: 24}";
  const auto job =
      ReadJobText(absl::StrCat("job: {name: run, output_dir: .}\nmodel: ", model,
                               "\ndata: {format: bytes, train: [{path: corpus.txt}], split: 0.1}\n"
                               "training: {seq_len: 16, global_batch_size: 4, steps: 20}\n"
                               "optimizer: {lr: 1.0e-3}\ncluster: {profile: cpu, slots: 1}\n"),
                  folder.job(), {});
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string resolved = ResolvedText(Resolve(job->job, Layout{.micro_batch_size = 2}), {});
  const std::string step = "run/checkpoint/step-7/";
  const std::string manifest = TextOf(folder.path() + "/" + step + "manifest.json");
  Campaign("run", 90, [&](Random& random, const std::string& name) {
    std::vector<Trial::File> files = {{"run/resolved.yaml", resolved},
                                      {step + "manifest.json", manifest}};
    Trial::File& damaged = files[random.Below(2)];
    damaged.text = Damaged(damaged.text, random);
    const std::vector<std::vector<std::string>> calls = {
        {"status", "run"},
        {"stop", "run"},
        {"plan", "run/resolved.yaml", "--without-data"},
        {"eval", "run", "--data", "corpus.txt", "--steps", "1", "--threads", "1"},
        {"eval", step, "--data", "corpus.txt", "--steps", "1", "--threads", "1"},
        {"generate", "run/checkpoint", "--prompt", "a", "--max-tokens", "2", "--threads", "1"}};
    Answered(
        folder,
        {.files = files, .arguments = random.Of(absl::MakeConstSpan(calls)), .shows_text = false},
        name);
  });
}

TEST(DamagedCommands, AreAnswered) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  folder.Write("job.yaml", kGoodJob);
  // None that starts a run or measures the machine.
  const std::vector<std::vector<std::string>> calls = {
      {"plan", "job.yaml", "--set", "training.steps=30", "--json"},
      {"plan", "job.yaml", "--cluster", "h100x8", "--nodes", "4", "--without-nodes", "1"},
      {"plan", "job.yaml", "--parts", "h100x8:2,a100-80gx8:1", "--without-data"},
      {"plan", "job.yaml", "--why", "tp=1,pp=1,dp=4", "--explain", "3"},
      {"plan", "job.yaml", "--layout", "dp=2,pp=2,micro_batch_size=2", "--engine", "weft"},
      {"plan", "job.yaml", "--svg", "out.svg", "--without-data"},
      {"eval", "saved", "--data", "corpus.txt", "--steps", "1", "--batch", "2", "--threads", "1"},
      {"eval", "saved/step-7", "--data", "corpus.txt", "--format", "bytes", "--seq-len", "8",
       "--steps", "1", "--json"},
      {"generate", "saved", "--prompt", "hello", "--max-tokens", "4", "--threads", "1"},
      {"generate", "saved", "--prompt-ids", "1,2,3", "--temperature", "0.7", "--top-k", "5",
       "--top-p", "0.9", "--seed", "3", "--max-tokens", "4"},
      {"generate", "saved", "--prompt-file", "job.yaml", "--greedy", "--echo"},
      {"export", "saved", "--hf", "out"},
      {"status", "job.yaml"},
      {"stop", "out", "--now"},
      {"attach", "saved"},
      {"doctor", "--json"},
      {"--version"}};
  std::vector<std::string> others;
  for (const auto& call : calls) others.insert(others.end(), call.begin(), call.end());
  for (const char* const key :
       {"dp=0", "tp=99999999999", "pp=-1", "recompute=full", "zero_stage=3",
        "training.seq_len=1e18", "model.n_embd=[1]", "cluster=null", "cluster.profile=~", "=",
        "a=b=c", "model=1", "data={}", "job.name=", "--help", "--", "-", "-1", "--set="}) {
    others.emplace_back(key);
  }
  Campaign("command", 160, [&](Random& random, const std::string& name) {
    const Trial trial{
        .arguments = DamagedCommand(random.Of(absl::MakeConstSpan(calls)), others, random),
        .shows_text = false};
    Answered(folder, trial, name);
  });
}

// A number in the place of a word is another word; a word in the place of a number is an error.
TEST(DamageThatMustNotPass, NumbersThatAreNone) {
  const JobFolder folder;
  const std::vector<std::string> texts = {kGoodJob, kFullJob};
  Campaign("number", 60, [&](Random& random, const std::string& name) {
    const std::string& text = random.Of(absl::MakeConstSpan(texts));
    const std::vector<Word> numbers = NumbersIn(text);
    const Trial trial{.files = {{"job.yaml", WithWord(text, random.Of(absl::MakeConstSpan(numbers)),
                                                      random.Of(NoNumbers()))}},
                      .arguments = {"plan", "job.yaml", "--without-data"},
                      .exit_codes = {2}};
    Answered(folder, trial, name);
  });
}

TEST(DamageThatMustNotPass, NumbersOfProfilesThatAreNone) {
  const JobFolder folder;
  folder.Write("job.yaml", kGoodJob);
  const std::string text = TextOf(SourcePath("/configs/clusters/h100x8.yaml"));
  Campaign("number of a profile", 40, [&](Random& random, const std::string& name) {
    const std::vector<Word> numbers = NumbersIn(text);
    const Trial trial{
        .files = {{"lab.yaml", WithWord(text, random.Of(absl::MakeConstSpan(numbers)),
                                        random.Of(NoNumbers()))}},
        .arguments = {"plan", "job.yaml", "--without-data", "--cluster", "./lab.yaml"},
        .exit_codes = {2}};
    Answered(folder, trial, name);
  });
}

TEST(DamageThatMustNotPass, KeysThatNobodyKnows) {
  const JobFolder folder;
  const std::vector<std::string> texts = {kGoodJob, kFullJob};
  Campaign("key", 40, [&](Random& random, const std::string& name) {
    const std::string& text = random.Of(absl::MakeConstSpan(texts));
    const std::vector<Word> keys = KeysIn(text);
    const Word key = random.Of(absl::MakeConstSpan(keys));
    const std::string own = text.substr(key.begin, key.size);
    const Trial trial{.files = {{"job.yaml", WithWord(text, key, own + "_zz")}},
                      .arguments = {"plan", "job.yaml", "--without-data"},
                      .exit_codes = {2}};
    Answered(folder, trial, name);
  });
}

}  // namespace
}  // namespace weft
