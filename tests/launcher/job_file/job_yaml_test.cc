// These tests say what a job file may say, and what becomes of it.
#include "launcher/job_file/job_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class JobYaml : public ::testing::Test {
 protected:
  absl::StatusOr<JobFile> Read(const std::string& text, std::vector<std::string> sets = {}) {
    return ReadJobText(text, folder_.job(), {.sets = std::move(sets), .check_files = true});
  }
  // The error without the temporary folder in it.
  std::string Error(const std::string& text, std::vector<std::string> sets = {}) {
    const absl::StatusOr<JobFile> file = Read(text, std::move(sets));
    if (file.ok()) return "accepted";
    std::string message(file.status().message());
    for (size_t at; (at = message.find(folder_.path() + "/")) != std::string::npos;) {
      message.erase(at, folder_.path().size() + 1);
    }
    return message;
  }
  JobFolder folder_;
};

TEST_F(JobYaml, ReadsAFileAsItsAuthorMeantIt) {
  const auto file = Read(kGoodJob);
  ASSERT_TRUE(file.ok()) << file.status();
  const JobSpec& job = file->job;
  EXPECT_EQ(job.name, "small");
  EXPECT_EQ(job.output_dir, folder_.path() + "/outputs");
  EXPECT_EQ(job.model.hidden_size, 32);
  EXPECT_EQ(job.model.ffn_size, 128);
  EXPECT_EQ(job.model.head_dim, 8);
  EXPECT_TRUE(job.model.tied_embeddings);
  ASSERT_EQ(job.data.train.size(), 1);
  EXPECT_EQ(job.data.train[0].path, folder_.path() + "/corpus.txt");
  EXPECT_EQ(job.training.global_batch_size, 8);
  EXPECT_FALSE(job.layout.micro_batch_size.has_value());
  EXPECT_EQ(job.layout.dp, 2);
  EXPECT_EQ(job.cluster.slots(), 4);
  EXPECT_EQ(job.cluster.name, "cpu");
  EXPECT_TRUE(file->notes.empty());
}

TEST_F(JobYaml, AcceptsWhatWeftDoesAnyway) {
  const auto file = Read(std::string(kGoodJob) +
                         "lora: null\n"
                         "tokenizer: null\n"
                         "offload: {optimizer: none, params: none}\n"
                         "profiler: {enable: false, freq: 100, memory_snapshot: false}\n"
                         "activation_checkpointing: {mode: auto}\n"
                         "metrics: {log_freq: 5, tensorboard: false}\n"
                         "checkpoint: {async: false, export_hf: never, resume: none}\n"
                         "deterministic: true\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.log_freq, 5);
  EXPECT_TRUE(file->job.deterministic);
  EXPECT_EQ(file->job.checkpoint.resume, ResumeMode::kNone);
}

TEST_F(JobYaml, TracesStepsOnlyWhereTheProfilerIsOn) {
  const auto freq = [&](const std::string& profiler) {
    const auto file = Read(std::string(kGoodJob) + profiler);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? (file->job.profiler.enable ? file->job.profiler.freq : 0) : -1;
  };
  EXPECT_EQ(freq(""), 0);
  EXPECT_EQ(freq("profiler: {freq: 5}\n"), 0);
  EXPECT_EQ(freq("profiler: {enable: true}\n"), 100);
  EXPECT_EQ(freq("profiler: {enable: true, freq: 5}\n"), 5);
  EXPECT_THAT(
      Read(std::string(kGoodJob) + "profiler: {enable: true, freq: 0}\n").status().message(),
      testing::HasSubstr("profiler.freq: 0 is out of range; use 1 to 2147483648"));
}

TEST(JobFile, NotesThatAValidationReadsHeldOutDataTwice) {
  const JobFolder folder;  // 124 sequences; split 0.1 holds 12 out, 0.01 one
  folder.Write("job.yaml", kGoodJob);
  const auto notes = [&folder](const std::string& split, const std::string& steps) {
    const auto file = ReadJobFile(
        folder.job(),
        {.sets = {"data.split=" + split, "validation.interval=5", "validation.steps=" + steps}});
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->notes : std::vector<std::string>();
  };
  EXPECT_THAT(notes("0.1", "1"), testing::IsEmpty());
  EXPECT_THAT(notes("0.1", "2"),
              testing::ElementsAre(testing::AllOf(
                  HasSubstr("validation.steps: 2 batches of training.global_batch_size 8 are more "
                            "than the 12 held-out sequences"),
                  HasSubstr("steps: 1 would read each once"))));
  EXPECT_THAT(notes("0.01", "1"),
              testing::ElementsAre(HasSubstr("more than the 1 held-out sequences")));
}

TEST_F(JobYaml, AnyTwoOfTheBatchFixTheThird) {
  const std::string both = "micro_batch_size: 2\n  gradient_accumulation_steps: 3";
  auto file = Read(JobWith("global_batch_size: 8", both));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.training.global_batch_size, 12);  // 2 x 3 x dp 2

  file = Read(JobWith("global_batch_size: 8", "global_batch_size: 8\n  micro_batch_size: 2"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.layout.micro_batch_size, 2);

  EXPECT_THAT(
      Error(JobWith("global_batch_size: 8", both), {"parallelism.dp=auto"}),
      HasSubstr("job.yaml:12: training.global_batch_size: missing; with parallelism.dp auto"));
  EXPECT_THAT(Error(JobWith("global_batch_size: 8", "micro_batch_size: 2")),
              HasSubstr("give it, or both micro_batch_size and gradient_accumulation_steps"));
}

TEST_F(JobYaml, CountsTokensInsteadOfSteps) {
  const auto file = Read(JobWith("steps: 20", "tokens: 1.0e4"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.training.steps, 40);  // 10000 / (8 x 32), rounded up
  EXPECT_EQ(Error(JobWith("steps: 20", "steps: 20\n  tokens: 100")),
            "job.yaml:16: training.tokens: stands beside training.steps of job.yaml:15; keep one "
            "of the two");
}

TEST_F(JobYaml, ReadsTheNamesOfOtherSystemsOnce) {
  const auto file = Read(JobWith("  steps: 20", "  max_steps: 20"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.training.steps, 20);
  ASSERT_EQ(file->notes.size(), 1);
  EXPECT_THAT(file->notes[0],
              HasSubstr("job.yaml:15: training.max_steps is read as training.steps"));
  EXPECT_EQ(Error(JobWith("  steps: 20", "  steps: 20\n  train_iters: 30")),
            "job.yaml:16: training.train_iters: is another name of training.steps, which stands on "
            "line 15; keep one of the two");
}

TEST_F(JobYaml, ReadsTheWordsOfOtherSystems) {
  const auto file =
      Read(JobWith("pp: 2, tp: 1", "pp: 2, tp: 1, pipeline_parallel_schedule: Interleaved1F1B"),
           {"optimizer.name=AdamW", "training.mixed_precision_param=bfloat16",
            "lr_scheduler.type=Linear"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.layout.pp_schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(file->job.optimizer.name, OptimizerKind::kAdamw);
  EXPECT_EQ(file->job.training.mixed_precision, Precision::kBf16);
  EXPECT_EQ(file->job.lr_scheduler.type, LrSchedule::kLinear);
  EXPECT_THAT(file->notes,
              ::testing::Contains(HasSubstr("training.mixed_precision: bfloat16 is read as bf16")));
  for (const auto& [word, kind] : {std::pair("1F1B", ScheduleKind::kOneForwardOneBackward),
                                   std::pair("GPipe", ScheduleKind::kGpipe)}) {
    const auto read = Read(kGoodJob, {absl::StrCat("parallelism.pp_schedule=", word)});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->job.layout.pp_schedule, kind) << word;
  }
}

TEST_F(JobYaml, ReportsTheCauseWhereItWasSaidAndNotWhatFollowsFromIt) {
  EXPECT_EQ(Error(kGoodJob, {"lora={r: 0}"}),
            "--set lora={r: 0}: lora.r: 0 is out of range; use 1 to 32");
  EXPECT_EQ(Error(kGoodJob, {"parallelism={pp_schedule: interleaved_1f1b, pp: 1}"}),
            "--set parallelism={pp_schedule: interleaved_1f1b, pp: 1}: parallelism.pp_schedule: "
            "interleaved_1f1b with parallelism.pp 1 and n_layer 4; it needs 2 or more stages of 2 "
            "or more chunks, each with a block; use parallelism.pp 2 or more, or 1f1b");
  EXPECT_EQ(Error(kGoodJob, {"fp16.loss_scale=5"}),
            "--set fp16.loss_scale=5: fp16.loss_scale: 5 with training.mixed_precision fp32, whose "
            "loss is not scaled; use 0, or mixed_precision fp16");
}

TEST_F(JobYaml, ReadsForeignSectionsAndFlatNames) {
  const auto file = Read(JobWith("  global_batch_size: 8\n", "") +
                         "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 2}\n"
                         "seed: 7\n"
                         "dist_timeout: 50\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.training.global_batch_size, 8);
  EXPECT_EQ(file->job.training.seed, 7);
  EXPECT_EQ(file->job.comm.train_timeout_seconds, 50);
}

TEST_F(JobYaml, HintsTheValueWhereANameMeansSomethingElse) {
  EXPECT_EQ(Error(JobWith("  steps: 20", "  steps: 20\n  warmup: 0.1")),
            "job.yaml:16: training.warmup: is a share of the steps elsewhere; write "
            "lr_scheduler.warmup_steps: 2");
  EXPECT_EQ(Error(JobWith("{lr: 1.0e-3}", "{lr: 1.0e-3, min_lr_factor: 0.1}")),
            "job.yaml:16: optimizer.min_lr_factor: is a share of lr elsewhere; write "
            "lr_scheduler.min_lr: 0.0001");
}

TEST_F(JobYaml, SetReplacesAKeyWithTheSameChecks) {
  const auto file = Read(kGoodJob, {"training.steps=5", "max_steps=6", "optimizer.betas=[0.8, 0.9]",
                                    "data.split=0.1", "model.n_layer=2", "parallelism.dp=-1"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.training.steps, 6);
  EXPECT_EQ(file->job.optimizer.beta1, 0.8);
  EXPECT_EQ(file->job.data.split, 0.1);
  EXPECT_EQ(file->job.model.num_blocks, 2);
  EXPECT_FALSE(file->job.layout.dp.has_value());
  EXPECT_EQ(Error(kGoodJob, {"training.steps=x", "training.stepz=3", "nonsense"}),
            "--set training.steps=x: training.steps: found x; expected a whole number\n"
            "--set training.stepz=3: training.stepz: unknown key; did you mean steps?\n"
            "--set nonsense: expected key=value, for example --set training.steps=100");
}

TEST_F(JobYaml, ReadsTheModelFromAConfigJson) {
  folder_.Write("config.json",
                "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"],\n"
                " \"torch_dtype\": \"float32\", \"_name_or_path\": \"x\",\n"
                " \"vocab_size\": 256, \"n_positions\": 64, \"n_embd\": 32, \"n_inner\": null,\n"
                " \"n_layer\": 4, \"n_head\": 4, \"layer_norm_epsilon\": 1e-06,\n"
                " \"resid_pdrop\": 0.1}\n");
  const std::string text =
      "job: {name: small}\nmodel: {path: .}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
      "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";
  const auto planned = Read(text);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_THAT(planned->notes,
              testing::Contains("model.resid_pdrop: 0.1 is planned as 0; weft run does not train "
                                "with dropout yet, and wants --set model.resid_pdrop=0"));
  const auto run = ReadJobText(text, folder_.job(), {.to_run = true});
  EXPECT_THAT(std::string(run.status().message()),
              HasSubstr("model.resid_pdrop: 0.1 is not supported yet; use 0: --set "
                        "model.resid_pdrop=0"));
  const auto file = Read(text, {"model.resid_pdrop=0"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.model.norm_eps, 1e-6);
  EXPECT_EQ(file->job.model.ffn_size, 128);
  EXPECT_THAT(file->notes[0], HasSubstr("model.resid_pdrop: 0 replaces 0.1 of"));
  folder_.Write("config.json", "{\"model_type\": \"gpt2\",\n \"n_layer\": }");
  EXPECT_EQ(Error(text),
            "config.json: model.path: line 2, byte 36: not JSON: found \" \"n_layer\": }\"; "
            "expected a config.json");
  // A file of JSON that is not read: nothing is said of keys that were not.
  folder_.Write("config.json",
                "{\"model_type\": \"gpt2\", \"" + std::string(100000, 'k') + "\": 1}");
  EXPECT_EQ(Error(text), "config.json:1: model.path: not valid YAML: end of map flow not found");
}

TEST_F(JobYaml, ReadsALlama) {
  const std::string model =
      "model: {model_type: llama, vocab_size: 512, max_position_embeddings: 64, hidden_size: 64,\n"
      "  num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 2,\n"
      "  intermediate_size: 128, rope_theta: 500000.0, hidden_act: silu, rope_scaling: null}\n";
  const std::string rest =
      "job: {name: small}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
      "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";
  const auto file = Read(model + rest);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.model.num_kv_heads, 2);
  EXPECT_EQ(file->job.model.head_dim, 8);
  EXPECT_FALSE(file->job.model.tied_embeddings);
  EXPECT_EQ(Error(model + rest, {"model.rope_scaling={type: longrope}", "model.resid_pdrop=0"}),
            "--set model.rope_scaling={type: longrope}: model.rope_scaling: longrope is not "
            "supported yet; use null or a map with rope_type llama3, linear or yarn\n"
            "--set model.resid_pdrop=0: model.resid_pdrop: unknown key of a llama model; the "
            "nearest are head_dim, logit_scale, rms_norm_eps; weft keys --schema and "
            "docs/job_yaml.md have all");
}

// A published file below `model:`, with all that says nothing about how it computes.
TEST_F(JobYaml, ReadsAPublishedConfigThatWasPasted) {
  const std::string rest =
      "job: {name: small}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
      "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";
  const std::string mistral = R"(model: {
  "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
  "_name_or_path": "somewhere", "hidden_act": "silu", "hidden_size": 64, "id2label": {"0": "a"},
  "initializer_range": 0.02, "intermediate_size": 128, "max_position_embeddings": 4096,
  "model_type": "mistral", "num_attention_heads": 8, "num_hidden_layers": 2,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 32,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "temperature": 0.7,
  "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 512}
)";
  const auto file = Read(mistral + rest);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.model.max_positions, 4096);
  EXPECT_EQ(file->job.model.window, 32);
  EXPECT_EQ(file->job.model.architecture, Architecture::kMistral);
  EXPECT_EQ(Error(mistral + rest, {"model.sliding_window=-1"}),
            "--set model.sliding_window=-1: model.sliding_window: -1 is out of range; use null, or "
            "1 to 1073741824");
}

// To use another activation is no cure for weights that were trained with theirs.
TEST_F(JobYaml, AdvisesNoOtherModelForWeightsThatAreThere) {
  const std::string own = JobWith("n_head: 4", "n_head: 4\n  activation_function: gelu");
  EXPECT_EQ(Error(own),
            "job.yaml:9: model.activation_function: gelu is not supported yet; use gelu_new: --set "
            "model.activation_function=gelu_new");
  EXPECT_THAT(Error(own, {"model.init_from=hf"}),
              HasSubstr("gelu is not supported yet, and these weights were trained with it; use "
                        "weights of a model with gelu_new"));
}

TEST_F(JobYaml, KnowsAutoAndHomeAsPeopleWriteThem) {
  const auto file = Read(JobWith("parallelism: {dp: 2, pp: 2, tp: 1}",
                                 "parallelism: {dp: Auto, pp: AUTO}\n"
                                 "checkpoint: {interval: Auto, resume: Auto}\n"
                                 "offload: {optimizer: Auto}"),
                         {"data.format=bytes", "job.output_dir=~/runs"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->job.layout.dp.has_value());
  EXPECT_FALSE(file->job.checkpoint.interval.has_value());
  EXPECT_EQ(file->job.output_dir, std::string(getenv("HOME")) + "/runs");
}

TEST_F(JobYaml, NamesWhatIsEmpty) {
  const auto cluster = ReadJobText(kGoodJob, folder_.job(), {.cluster = ""});
  EXPECT_EQ(std::string(cluster.status().message()),
            "--cluster : is empty; name a profile of configs/clusters, or a file");
  folder_.Write("lab.yaml", "# nothing\n");
  EXPECT_EQ(Error(kGoodJob, {"cluster.profile=./lab.yaml"}),
            "lab.yaml:1: found nothing; a cluster profile is a map");
}

// transformers writes rope parameters so since version 5.
TEST_F(JobYaml, ReadsRopeParameters) {
  const auto text = [](const std::string& rope) {
    return "model: {model_type: llama, vocab_size: 512, max_position_embeddings: 64,\n"
           "  hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 8,\n"
           "  intermediate_size: 128, rope_parameters: " +
           rope +
           "}\n"
           "job: {name: small}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
           "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";
  };
  const auto plain = Read(text("{rope_theta: 500000.0, rope_type: default}"));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->job.model.rope_theta, 500000);
  EXPECT_EQ(plain->job.model.rope_scaling, RopeScaling());
  const auto stretched =
      Read(text("{factor: 8.0, high_freq_factor: 5.0, low_freq_factor: 2.0,\n"
                "  original_max_position_embeddings: 32, rope_theta: 20000.0, rope_type: llama3}"));
  ASSERT_TRUE(stretched.ok()) << stretched.status();
  EXPECT_EQ(stretched->job.model.rope_theta, 20000);
  EXPECT_EQ(stretched->job.model.rope_scaling, (RopeScaling{8, 2, 5, 32}));
  const auto yarn = Read(
      text("{rope_type: yarn, factor: 4, original_max_position_embeddings: 16, beta_fast: 24}"));
  ASSERT_TRUE(yarn.ok()) << yarn.status();
  EXPECT_EQ(
      yarn->job.model.rope_scaling,
      (RopeScaling{
          .factor = 4, .original_max_positions = 16, .kind = RopeKind::kYarn, .beta_fast = 24}));
  EXPECT_THAT(Error(text("{rope_theta: 1.0e4, rope_type: yarn}")),
              HasSubstr("model.rope_scaling.factor: missing; rope_type yarn needs it"));
  EXPECT_THAT(
      Error(text("{rope_type: yarn, factor: 4, beta_fast: 1, beta_slow: 2}")),
      HasSubstr("model.rope_scaling.beta_fast: 1 is out of range; use more than beta_slow"));
  EXPECT_THAT(Error(text("{rope_type: linear, factor: 4, beta_fast: 1}")),
              HasSubstr("model.rope_scaling.beta_fast: unknown key of rope_type linear; known are "
                        "factor"));
  EXPECT_THAT(Error(text("{rope_theta: 1.0e4, rope_type: default, factor: 4}")),
              HasSubstr("model.rope_scaling.factor: unknown key of rope_type default; it takes "
                        "none"));
  EXPECT_THAT(Error(text("{rope_type: llama3, attention_factor: 4}")),
              HasSubstr("model.rope_scaling.attention_factor: unknown key of rope_type llama3; "
                        "known are factor"));
  EXPECT_THAT(Error(text("8")), HasSubstr("model.rope_parameters: found 8, expected a map"));
}

TEST_F(JobYaml, ReadsRopeParametersOfEachSpan) {
  const auto text = [](const std::string& sliding) {
    return "model: {model_type: gemma3_text, vocab_size: 512, max_position_embeddings: 64,\n"
           "  hidden_size: 64, num_hidden_layers: 6, num_attention_heads: 4, head_dim: 16,\n"
           "  num_key_value_heads: 2, intermediate_size: 128, sliding_window: 16,\n"
           "  query_pre_attn_scalar: 16, rope_parameters: {full_attention: {rope_type: linear, "
           "factor: 4, rope_theta: 2.0e5}, sliding_attention: " +
           sliding +
           "}}\n"
           "job: {name: small}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
           "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";
  };
  const auto read = Read(text("{rope_type: default, rope_theta: 1234, partial_rotary_factor: 1}"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.model.rope_theta, 200000);
  EXPECT_EQ(read->job.model.rope_scaling.factor, 4);
  EXPECT_EQ(read->job.model.sliding_rope_theta, 1234);
  EXPECT_THAT(Error(text("{rope_theta: 1234, rope_type: linear, factor: 8}")),
              testing::AllOf(HasSubstr("model.rope_parameters: found rope_type linear of "
                                       "sliding_attention, which is not supported yet in blocks "
                                       "with a window; use default"),
                             HasSubstr("found factor 8 of sliding_attention")));
  EXPECT_THAT(Error(text("{rope_theta: 1234, partial_rotary_factor: 0.5}")),
              HasSubstr("found partial_rotary_factor 0.5 of sliding_attention"));
}

TEST_F(JobYaml, ReadsAMixtralAndStretchedPositions) {
  const std::string text =
      "model: {model_type: mixtral, vocab_size: 512, max_position_embeddings: 64, hidden_size: "
      "64,\n"
      "  num_hidden_layers: 2, num_attention_heads: 8, num_local_experts: 4, attention_bias: "
      "true,\n"
      "  intermediate_size: 128, rope_scaling: {rope_type: llama3, factor: 8,\n"
      "  low_freq_factor: 2, high_freq_factor: 5, original_max_position_embeddings: 32}}\n"
      "job: {name: small}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
      "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";
  const auto file = Read(text);
  ASSERT_TRUE(file.ok()) << file.status();
  const ModelShape& model = file->job.model;
  EXPECT_EQ(model.architecture, Architecture::kMixtral);
  EXPECT_EQ(model.num_experts, 4);
  EXPECT_EQ(model.experts_per_token, 2);  // Mixtral's own
  EXPECT_EQ(model.expert_ffn_size, 128);
  EXPECT_TRUE(model.attention_bias);
  EXPECT_EQ(model.rope_scaling, (RopeScaling{8, 2, 5, 32}));
}

TEST_F(JobYaml, ReadsEveryKeyOfALayout) {
  const auto file = Read(
      JobWith("parallelism: {dp: 2, pp: 2, tp: 1}",
              "parallelism: {dp: 2, pp: 2, tp: 1, cp: 1, ep: 1, zero_stage: 1,\n"
              "  zero_hpz_partition_size: 2, sequence_parallel: true, layers_per_stage: [1, 3],\n"
              "  pp_schedule: zb_h1, virtual_stages: 1}\n"
              "activation_checkpointing: {per_stage: [full, none]}\n"
              "offload: {optimizer: cpu}\n"
              "lora: {r: 16, lora_alpha: 32, target_modules: [c_attn, c_fc, c_fc],\n"
              "  quantization: nf4, lora_dropout: 0.0}"),
      {"training.head_chunk_tokens=64", "optimizer.name=adamw_8bit"});
  ASSERT_TRUE(file.ok()) << file.status();
  const LayoutSpec& asked = file->job.layout;
  EXPECT_EQ(asked.cp, 1);
  EXPECT_EQ(asked.ep, 1);
  EXPECT_EQ(asked.zero_stage, 1);
  EXPECT_EQ(asked.zero_hpz_partition_size, 2);
  EXPECT_EQ(asked.sequence_parallel, true);
  EXPECT_EQ(asked.layers_per_stage, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(asked.pp_schedule, ScheduleKind::kZeroBubbleH1);
  EXPECT_EQ(asked.virtual_stages, 1);
  EXPECT_EQ(file->job.layout.recompute, std::nullopt);
  EXPECT_EQ(file->job.layout.recompute_per_stage,
            (std::vector<Recompute>{Recompute::kFull, Recompute::kNone}));
  EXPECT_EQ(file->job.layout.offload_optimizer, OffloadDevice::kCpu);
  EXPECT_EQ(file->job.layout.head_chunk_tokens, 64);
  EXPECT_EQ(file->job.optimizer.name, OptimizerKind::kAdamw8bit);
  ASSERT_TRUE(file->job.lora.has_value());
  EXPECT_EQ(file->job.lora->target_modules, (std::vector<std::string>{"c_attn", "c_fc"}));
  EXPECT_EQ(file->job.lora->quantization, FrozenFormat::kNf4);
  const auto twice = Read(JobWith(
      "tp: 1}", "tp: 1}\nlora: {r: 16, quantization: nf4, bnb_4bit_use_double_quant: true}"));
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->job.lora->quantization, FrozenFormat::kNf4Double);
  const auto once = Read(kGoodJob, {"lora={r: 16, quantization: nf4, double_quantization: false}"});
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(once->job.lora->quantization, FrozenFormat::kNf4);
  const auto none = Read(kGoodJob, {"lora={r: 16, quantization: int8, double_quantization: true}"});
  EXPECT_THAT(std::string(none.status().message()),
              testing::HasSubstr("true beside lora.quantization int8, which has no scales to "
                                 "quantise; use quantization nf4, or false"));
  const auto off = Read(kGoodJob, {"parallelism.zero_hpz_partition_size=1",
                                   "parallelism.layers_per_stage=even", "lora={}"});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_EQ(off->job.layout.zero_hpz_partition_size, 1);
  EXPECT_EQ(off->job.layout.layers_per_stage, std::vector<int64_t>());
  EXPECT_FALSE(off->job.lora.has_value());
}

TEST_F(JobYaml, RefusesOnlyToRunWhatCanBePlanned) {
  const std::string text = JobWith("tp: 1}", "tp: 1}\nlora: {r: 16}");
  EXPECT_TRUE(Read(text).ok());
  const auto refused = ReadJobText(text, folder_.job(), {.to_run = true});
  EXPECT_THAT(std::string(refused.status().message()),
              testing::EndsWith(
                  "job.yaml:18: lora.r: 16 is not supported yet; leave the section lora out"));
}

TEST_F(JobYaml, TakesAnotherClusterInPlaceOfTheJobsOwn) {
  const auto replaced = ReadJobText(kGoodJob, folder_.job(), {.cluster = "h100x8", .nodes = 3});
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(replaced->job.cluster.name, "h100x8");
  EXPECT_EQ(replaced->job.cluster.nodes, 3);
  EXPECT_EQ(replaced->job.cluster.slots_per_node, 8);  // not the job's 4 slots
  EXPECT_TRUE(
      ReadJobText(kGoodJob, folder_.job(), {.sets = {"deterministic=true"}, .cluster = "h100x8"})
          .ok());
  const auto unknown = ReadJobText(kGoodJob, folder_.job(), {.cluster = "h100x9"});
  EXPECT_THAT(std::string(unknown.status().message()),
              testing::StartsWith("--cluster h100x9: cluster.profile: found no readable profile"));
}

TEST_F(JobYaml, SetChangesTheClusterThatTheFlagsBrought) {
  const auto six = ReadJobText(kGoodJob, folder_.job(),
                               {.sets = {"cluster.gpus_per_node=6"}, .cluster = "rtx4090x8"});
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_EQ(six->job.cluster.name, "rtx4090x8");
  EXPECT_EQ(six->job.cluster.slots_per_node, 6);
  const auto twice =
      ReadJobText(kGoodJob, folder_.job(), {.sets = {"cluster.nodes=2"}, .nodes = 3});
  EXPECT_THAT(
      std::string(twice.status().message()),
      testing::HasSubstr("--nodes 3: cluster.nodes: --set cluster.nodes=2 says it too; keep one"));
}

TEST_F(JobYaml, ExpandsAndSortsGlobs) {
  for (const char* name : {"b.txt", "a.txt", "c.dat"}) folder_.Write(name, std::string(100, 'x'));
  const auto file = Read(JobWith("corpus.txt", "\"?.txt\""));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->job.data.train.size(), 2);
  EXPECT_EQ(file->job.data.train[0].path, folder_.path() + "/a.txt");
  EXPECT_EQ(file->job.data.train[1].path, folder_.path() + "/b.txt");
}

TEST_F(JobYaml, SniffsTheFormatAndSaysWhich) {
  std::string llmc(1024 + 2 * 100, '\0');
  const int32_t header[3] = {20240520, 1, 100};
  llmc.replace(0, sizeof(header), reinterpret_cast<const char*>(header), sizeof(header));
  folder_.Write("train.bin", llmc);
  folder_.Write("raw.bin", std::string(400, '\0'));
  folder_.Write("lines.txt", "{\"text\": \"a\"}\n");
  const std::string automatic = JobWith("format: bytes", "format: auto");
  auto file = Read(automatic, {"data.train=[{path: train.bin}]"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.data.format, TokenFormat::kLlmc);
  EXPECT_THAT(file->notes[0], HasSubstr("train.bin is read as llmc"));
  file = Read(automatic, {"data.train=[{path: raw.bin}]"});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.data.format, TokenFormat::kNanogpt);
  folder_.Write("raw.idx", "no index");
  EXPECT_THAT(Error(automatic, {"data.train=[{path: raw.bin}]"}),
              HasSubstr("raw.idx: found no header of Megatron-LM's .idx"));
  EXPECT_THAT(Error(automatic, {"data.train=[{path: raw.idx}]"}),
              HasSubstr("raw.idx is the index of a .bin; name that"));
  EXPECT_THAT(Error(automatic, {"data.train=[{path: lines.txt}]"}),
              HasSubstr("(JSON lines); name their tokenizer with data.tokenizer"));
  EXPECT_THAT(Error(automatic), HasSubstr("corpus.txt has no header and no name that tells"));
}

TEST_F(JobYaml, PassesOverWhatAGlobMeetsBesideFiles) {
  std::filesystem::create_directories(folder_.path() + "/set/folder.txt");
  folder_.Write("set/a.txt", std::string(100, 'x'));
  folder_.Write("set/empty.txt", "");
  const auto file = Read(JobWith("corpus.txt", "\"set/*.txt\""));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->job.data.train.size(), 1);
  EXPECT_EQ(file->job.data.train[0].path, folder_.path() + "/set/a.txt");
  EXPECT_THAT(file->notes[0], HasSubstr("data.train: 2 of the 3 that "));
  // Other systems write them so.
  for (const char* given : {"set/a.txt", "'set/a.t?t'", "[set/a.txt]", "['set/a.txt']",
                            "[{path: set/a.txt}]", "{path: set/a.txt}"}) {
    SCOPED_TRACE(given);
    const auto plain =
        Read(JobWith("corpus.txt", "corpus.txt"), {absl::StrCat("data.train=", given)});
    ASSERT_TRUE(plain.ok()) << plain.status();
    ASSERT_EQ(plain->job.data.train.size(), 1);
    EXPECT_EQ(plain->job.data.train[0].path, folder_.path() + "/set/a.txt");
  }
  EXPECT_THAT(Error(JobWith("corpus.txt", "corpus.txt"), {"data.train=7"}),
              HasSubstr("expected a file, or a list of files"));
  EXPECT_THAT(Error(JobWith("corpus.txt", "corpus.txt"), {"data.train=[true]"}),
              HasSubstr("expected a file, or a list of files"));
  EXPECT_THAT(Error(JobWith("corpus.txt", "\"set/e*.txt\"")),
              HasSubstr("is empty; training needs"));
}

TEST_F(JobYaml, ReadsFlagsAndTabsAsYamlMeansThem) {
  for (const char* word : {"true", "True", "TRUE"}) {
    const auto file = Read(kGoodJob, {absl::StrCat("profiler.enable=", word)});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->job.profiler.enable) << word;
    EXPECT_TRUE(Read(std::string(kGoodJob) +
                     "metrics: {tensorboard: " + (word[0] == 't' ? "false" : "False") + "}\n")
                    .ok());
  }
  EXPECT_THAT(Error(kGoodJob, {"profiler.enable=tRUE"}), HasSubstr("expected true or false"));
  EXPECT_THAT(Error(kGoodJob, {"profiler.enable=\"True\""}), HasSubstr("expected true or false"));
  EXPECT_EQ(Error("job: {name: a}\ntraining:\n  steps: 3\n\tseed: 4\n"),
            "job.yaml:4: not valid YAML: a tab indents line 4, at column 1; YAML is indented by "
            "spaces alone");
  EXPECT_THAT(Error(std::string("base: &base {steps: 3}\n") + kGoodJob),
              HasSubstr("base: unknown key"));
  EXPECT_THAT(Error(JobWith("  steps: 20", "  steps: 20\n  <<: {seed: 3}")),
              HasSubstr("training.<<: merge keys are not supported (YAML 1.2 has none)"));
}

TEST_F(JobYaml, NamesTheNearestKeysAndWhereAllStand) {
  EXPECT_THAT(Error(kGoodJob, {"training.quux=3"}),
              ::testing::AllOf(HasSubstr("training.quux: unknown key; the nearest are "),
                               HasSubstr("; weft keys training lists all")));
  EXPECT_LT(Error(kGoodJob, {"cluster.zzzzzzz=3"}).size(), 200);
}

TEST_F(JobYaml, ReadsTokensOfTheWidthThatIsSaidOrRefuses) {
  std::string ids32, ids16, ids64;
  for (int32_t i = 0; i < 400; ++i) {
    const int32_t id = i * 37 % 101 + 1;
    const auto add = [](std::string* to, auto value) {
      to->append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    add(&ids32, id);
    add(&ids16, static_cast<uint16_t>(id));
    add(&ids64, int64_t{id});
  }
  std::string llmc(1024, '\0');
  const int32_t header[3] = {20240801, 7, 400};
  llmc.replace(0, sizeof(header), reinterpret_cast<const char*>(header), sizeof(header));
  folder_.Write("u16.bin", ids16);
  folder_.Write("u32.bin", ids32);
  folder_.Write("i64.bin", ids64);
  folder_.Write("llama.bin", llmc + ids32);
  folder_.Write("ids.npy", std::string("\x93NUMPY\x01\0", 8) + ids32);
  folder_.Write("ids.bin", std::string("\x93NUMPY\x01\0", 8) + ids32);
  const std::string automatic = JobWith("format: bytes", "format: auto");
  const auto with = [](const char* file, const char* vocab_size,
                       std::vector<std::string> more = {}) {
    more.push_back(absl::StrCat("data.train=[{path: ", file, "}]"));
    more.push_back(absl::StrCat("model.vocab_size=", vocab_size));
    return more;
  };
  const char* const wide = "128256";
  EXPECT_TRUE(Read(automatic, with("u16.bin", "300")).ok());
  EXPECT_THAT(
      Error(automatic, with("u32.bin", "300")),
      HasSubstr("as in a file of 32-bit ids, but it would be read as uint16; set data.dtype"));
  EXPECT_THAT(Error(automatic, with("u32.bin", wide)),
              HasSubstr("data.dtype: missing: 16 bits, as nanogpt files have them, cannot hold the "
                        "ids of model.vocab_size 128256"));
  EXPECT_THAT(Error(automatic, with("u16.bin", wide)), HasSubstr("data.dtype: missing"));
  const auto taken = Read(automatic, with("u32.bin", wide, {"data.dtype=uint32"}));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->job.data.dtype, TokenDtype::kUint32);
  EXPECT_TRUE(Read(automatic, with("u16.bin", wide, {"data.dtype=uint16"})).ok());
  EXPECT_TRUE(Read(automatic, with("u32.bin", "300", {"data.dtype=int32"})).ok());
  EXPECT_THAT(Error(automatic, with("u16.bin", wide, {"data.dtype=uint32"})),
              HasSubstr("expected below vocab_size 128256"));
  for (const char* dtype : {"uint16", "uint32"}) {
    EXPECT_THAT(Error(automatic, with("i64.bin", wide, {absl::StrCat("data.dtype=", dtype)})),
                HasSubstr("as in a file of 64-bit ids"));
  }
  for (const char* file : {"ids.npy", "ids.bin"}) {
    EXPECT_THAT(Error(automatic, with(file, wide, {"data.dtype=uint32"})),
                HasSubstr("found NumPy's .npy format"));
  }
  const auto llama = Read(automatic, with("llama.bin", wide));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->job.data.format, TokenFormat::kLlmc);
  EXPECT_THAT(Error(kGoodJob, {"data.dtype=uint16"}),
              HasSubstr("data.dtype: uint16 with data.format bytes, whose ids are bytes"));
}

TEST_F(JobYaml, SaysWhichStepsHaveNoLearningRateAndRefusesAJobOfThemAlone) {
  const auto note = [&](const std::vector<std::string>& sets) {
    const auto file = ReadJobText(kGoodJob, folder_.job(), {.sets = sets, .to_run = true});
    EXPECT_TRUE(file.ok()) << file.status();
    for (const std::string& each : file.ok() ? file->notes : std::vector<std::string>()) {
      if (absl::StartsWith(each, "lr_scheduler.min_lr: ")) return each;
    }
    return std::string();
  };
  EXPECT_EQ(note({"training.steps=10"}),
            "lr_scheduler.min_lr: the learning rate of step 10, the last, is 0, which changes "
            "nothing; lr_scheduler.decay_steps 11 or a min_lr above 0 trains to the end");
  EXPECT_THAT(note({"training.steps=10", "lr_scheduler.decay_steps=6", "lr_scheduler.type=linear"}),
              HasSubstr("steps 6 to 10 is 0"));
  EXPECT_EQ(note({"training.steps=10", "lr_scheduler.decay_steps=11"}), "");
  EXPECT_EQ(note({"training.steps=10", "lr_scheduler.min_lr=1e-5"}), "");
  EXPECT_EQ(note({"training.steps=10", "lr_scheduler.type=constant"}), "");
  const auto to_run =
      ReadJobText(kGoodJob, folder_.job(), {.sets = {"training.steps=1"}, .to_run = true});
  EXPECT_THAT(
      std::string(to_run.status().message()),
      HasSubstr("lr_scheduler.min_lr: 0, which cosine falls to by step 1: the learning rate "
                "is 0 in every step"));
  EXPECT_EQ(note({"training.steps=1", "lr_scheduler.type=constant"}), "");
}

TEST_F(JobYaml, TakesAClusterProfileByNamePathOrMap) {
  folder_.Write(
      "mine.yaml",
      "name: mine\nslots_per_node: 3\ndevice: {name: d, backend: cpu, memory_bytes: 1e9,\n"
      "  library_bytes: 0, peak_flops_per_s: {fp32: 1e9},\n"
      "  peak_memory_bytes_per_s: 1e9,\n"
      "  efficiency: {matmul_fp32: 1, attention: 1, streaming: 1},\n"
      "  op_overhead_s: 0}\nintra_node: {latency_s: 0, bytes_per_s: 1e9}\n"
      "inter_node: {latency_s: 0, bytes_per_s: 1e9}\n");
  const auto file = Read(JobWith("{profile: cpu, slots: 4}", "{profile: mine.yaml, slots: 5}"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.cluster.name, "mine");
  EXPECT_EQ(file->job.cluster.slots_per_node, 5);
  folder_.Write("mine.yaml", "name: mine\nslots_per_nod: 3\n");
  EXPECT_THAT(Error(JobWith("profile: cpu", "profile: mine.yaml")),
              HasSubstr("mine.yaml:2: slots_per_nod: unknown key; did you mean slots_per_node?"));
}

TEST_F(JobYaml, PlansWhereTheDataIsNot) {
  const auto file = ReadJobText(JobWith("corpus.txt", "/nowhere/x_*.bin"), folder_.job(),
                                {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.data.train[0].path, "/nowhere/x_*.bin");
}

TEST_F(JobYaml, ShowsAllErrorsSortedByLine) {
  const std::string text = JobWith("n_layer: 4", "n_layr: 4");
  EXPECT_EQ(Error(text, {"training.steps=-1"}),
            "job.yaml:2: model.n_layer: missing; a gpt2 model needs it\n"
            "job.yaml:7: model.n_layr: unknown key of a gpt2 model; did you mean n_layer?\n"
            "--set training.steps=-1: training.steps: -1 is out of range; use 1 to 2147483648");
}

TEST_F(JobYaml, PutsTheLineBeforeAMessageOfThePlanner) {
  const auto file = Read(kGoodJob);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->Locate("parallelism.tp: 3 does not divide"),
            folder_.job() + ":17: parallelism.tp: 3 does not divide");
  EXPECT_EQ(file->Locate("training.micro_batch_size: x"),
            folder_.job() + ":12: training.micro_batch_size: x");
  EXPECT_EQ(file->Locate("nothing fits: x"), folder_.job() + ": nothing fits: x");
}

}  // namespace
}  // namespace weft
