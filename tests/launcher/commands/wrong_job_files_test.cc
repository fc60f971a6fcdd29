// Wrong job files, through the real executable: each is refused with exit code 2 and says file,
// line, key, what was found and what is allowed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"

namespace weft {
namespace {

struct WrongFile {
  const char* name;
  std::string text;
  std::string error;  // without the summary line; FOLDER stands for where the file lies
};

void PrintTo(const WrongFile& file, std::ostream* out) {
  *out << file.name;
}

std::vector<WrongFile> NotAJobFile() {
  return {
      {"unknown_key", JobWith("steps: 20", "steps: 20\n  gradient_clipp1ng: 1.0"),
       "job.yaml:16: training.gradient_clipp1ng: unknown key; did you mean gradient_clipping?"},
      {"unknown_section", JobWith("optimizer:", "optimiser:"),
       "job.yaml:16: optimiser: unknown key; did you mean optimizer?"},
      {"alias_of_another_section", JobWith("steps: 20", "steps: 20\n  learning_rate: 1e-3"),
       "job.yaml:16: training.learning_rate: unknown key; did you mean optimizer.lr?"},
      {"share_of_the_steps", JobWith("optimizer:", "warmup_ratio: 0.1\noptimizer:"),
       "job.yaml:16: warmup_ratio: is a share of the steps; write lr_scheduler.warmup_steps: 2"},
      {"epochs", JobWith("optimizer:", "num_train_epochs: 3\noptimizer:"),
       "job.yaml:16: training.epochs: stands beside training.steps of job.yaml:15; keep one of the "
       "two"},
      {"model_type_misspelled", JobWith("gpt2", "gtp2"),
       "job.yaml:3: model.model_type: found gtp2, which weft does not know; did you mean gpt2?"},
      {"key_of_another_section", JobWith("steps: 20", "steps: 20\n  pp: 2"),
       "job.yaml:16: training.pp: unknown key; did you mean parallelism.pp?"},
      {"wrong_type", JobWith("steps: 20", "steps: twenty"),
       "job.yaml:15: training.steps: found twenty; expected a whole number"},
      {"number_in_quotes", JobWith("steps: 20", "steps: \"20\""),
       "job.yaml:15: training.steps: found the text \"20\"; expected a whole number; remove the "
       "quotes"},
      {"fraction", JobWith("steps: 20", "steps: 20.5"),
       "job.yaml:15: training.steps: found 20.5; expected a whole number"},
      {"list_for_a_number", JobWith("steps: 20", "steps: [20]"),
       "job.yaml:15: training.steps: found a list of 1; expected a whole number"},
      {"empty", "",
       "job.yaml:1: is empty; a job file needs at least job, model, data and training"},
      {"only_a_comment", "# nothing\n",
       "job.yaml:1: is empty; a job file needs at least job, model, data and training"},
      {"not_yaml", JobWith("{name: small}", "{name: [small}"),
       "job.yaml:1: not valid YAML: illegal flow end"},
      {"a_tab", JobWith("  steps: 20", "\tsteps: 20"),
       "job.yaml:15: not valid YAML: a tab indents line 15, at column 1; YAML is indented by "
       "spaces alone"},
      {"a_sentence", "train a model please\n",
       "job.yaml:1: not a job file: found train a model please; expected sections (job, model, "
       "data, "
       "training, ...)"},
      {"two_documents", std::string(kGoodJob) + "---\na: 1\n",
       "job.yaml:20: a second document starts here; a spec is one document, remove the ---"},
      {"duplicate_key", JobWith("steps: 20", "steps: 20\n  steps: 30"),
       "job.yaml:16: training.steps: duplicate key; it stands on line 15 already; keep one of the "
       "two"},
      {"duplicate_section", std::string(kGoodJob) + "data: {format: bytes}\n",
       "job.yaml:19: data: duplicate key; it stands on line 9 already; keep one of the two"},
      {"key_and_its_alias", JobWith("steps: 20", "steps: 20\n  max_iters: 30"),
       "job.yaml:16: training.max_iters: is another name of training.steps, which stands on line "
       "15; "
       "keep one of the two"},
      {"endless_alias", "job: &x [*x]\n", "job.yaml:1: nested too deep or too large to be a spec"},
  };
}

std::vector<WrongFile> NotBuiltYet() {
  return {
      {"activation", JobWith("n_head: 4", "n_head: 4\n  activation_function: relu"),
       "job.yaml:9: model.activation_function: relu is not supported yet; use gelu_new: --set "
       "model.activation_function=gelu_new"},
      {"family", JobWith("gpt2", "bert"),
       "job.yaml:3: model.model_type: bert is not supported yet; use gpt2, llama, mistral, "
       "mixtral, qwen2, qwen3, qwen3_moe, phi3, starcoder2, granite, seed_oss, smollm3, gemma, "
       "gemma2, gemma3_text, glm, glm4, deepseek_v2, "
       "deepseek_v3, nemotron, gpt_neox, olmo2, olmo3, ministral or cohere2"},
      {"schedule", JobWith("pp: 2", "pp: 2, pp_schedule: ZBVZeroBubble"),
       "job.yaml:17: parallelism.pp_schedule: ZBVZeroBubble is not supported yet; use auto, gpipe, "
       "1f1b, interleaved_1f1b or zb_h1"},
      {"duration", JobWith("steps: 20\n", "steps: 20\ncheckpoint: {interval: 30m}\n"),
       "job.yaml:16: checkpoint.interval: found 30m; expected a whole number or auto"},
      {"weights", JobWith("corpus.txt", "corpus.txt, weight: 0.5"),
       "job.yaml:11: data.train.weight: 0.5 is not supported yet; use 1 or leave it out: files are "
       "sampled in proportion to their size"},
  };
}

// Can be planned.
std::vector<WrongFile> NotToBeRunYet() {
  return {
      {"dropout", JobWith("n_head: 4", "n_head: 4\n  resid_pdrop: 0.1"),
       "job.yaml:9: model.resid_pdrop: 0.1 is not supported yet; use 0: --set model.resid_pdrop=0"},
      {"lora", JobWith("dp: 2, pp: 2, tp: 1}", "dp: 1, pp: 1, cp: 2}\nlora: {r: 16}"),
       "job.yaml:18: lora.r: 16 is not supported yet; leave the section lora out"},
  };
}

std::vector<WrongFile> NotOnThisMachine() {
  return {
      {"missing_data_file", JobWith("corpus.txt", "corpse.txt"),
       "job.yaml:11: data.train.path: no such file: FOLDER/corpse.txt; paths are relative to the "
       "job "
       "file (weft plan --without-data plans all the same)"},
      {"glob_of_nothing", JobWith("corpus.txt", "\"*.bin\""),
       "job.yaml:11: data.train.path: no file matches FOLDER/*.bin; paths are relative to the job "
       "file (weft plan --without-data plans all the same)"},
      {"data_is_a_folder", JobWith("corpus.txt", "."),
       "job.yaml:11: data.train.path: FOLDER is a folder; name files, for example FOLDER/*.txt"},
      {"data_too_short", JobWith("corpus.txt", "short.txt"),
       "job.yaml:11: data.train: FOLDER/short.txt: holds 20 tokens, expected at least seq_len + 1 "
       "= "
       "33; use a longer file or a smaller training.seq_len"},
      {"name_is_no_folder", JobWith("small", "../evil"),
       "job.yaml:1: job.name: \"../evil\" cannot name a folder; use 1 to 100 letters, digits, "
       "dots, "
       "underscores and dashes, a letter or digit first"},
      {"unknown_profile", JobWith("profile: cpu", "profile: cup"),
       "job.yaml:18: cluster.profile: found no readable profile cup; use a100-40gx8, a100-80gx8, "
       "a10gx8, b200x8, b300x8, cpu, gb200-nvl72, gb300-nvl72, h100x8, h200, h200x8, h20x8, "
       "h800x8, l40sx8, l4x8, mi300xx8, rtx3090x8, rtx4090x8, rtx5090x8, t4x4 or the path of a "
       "file"},
      {"gpus_of_a_cpu", JobWith("slots: 4", "gpus_per_node: 4"),
       "job.yaml:18: cluster.gpus_per_node: the profile cpu counts its workers in cluster.slots; "
       "use "
       "that key"},
  };
}

std::vector<WrongFile> BrokenRules() {
  return {
      {"tp_does_not_divide", JobWith("dp: 2, pp: 2, tp: 1", "tp: 3"),
       "job.yaml:17: parallelism.tp: 3 does not divide n_head 4; use 1, 2 or 4"},
      {"heads_do_not_divide", JobWith("n_head: 4", "n_head: 5"),
       "job.yaml:8: model.n_head: 5 does not divide n_embd 32; use 1, 2, 4, 8, 16 or 32"},
      {"more_ranks_than_slots", JobWith("dp: 2, pp: 2", "dp: 4, pp: 4"),
       "job.yaml:17: parallelism: dp 4 x tp 1 x pp 4 = 16 workers are more than the number of "
       "slots "
       "4 (cluster.nodes 1 x cluster.slots 4); lower a degree or use more slots"},
      {"batch_does_not_divide", JobWith("global_batch_size: 8", "global_batch_size: 7"),
       "job.yaml:17: parallelism.dp: 2 does not divide training.global_batch_size 7; use 1 or 7"},
      {"batch_contradicts",
       JobWith("global_batch_size: 8",
               "global_batch_size: 8\n  micro_batch_size: 2\n"
               "  gradient_accumulation_steps: 4"),
       "job.yaml:14: training.global_batch_size: 8 is not training.micro_batch_size 2 x "
       "training.gradient_accumulation_steps 4 x parallelism.dp 2 = 16; use 16, or auto for one of "
       "the others"},
      {"batch_auto", JobWith("global_batch_size: 8", "global_batch_size: auto"),
       "job.yaml:14: training.global_batch_size: found auto; expected a whole number"},
      {"sequence_too_long", JobWith("seq_len: 32", "seq_len: 128"),
       "job.yaml:13: training.seq_len: 128 is more than model.n_positions 64; use at most 64"},
      {"param_group",
       JobWith("lr: 1.0e-3", "param_groups: [{params: [\"*.biass\"], weight_decay: 0}]"),
       "job.yaml:16: optimizer.param_groups: \"*.biass\" matches no tensor of the model; "
       "did "
       "you mean *.bias?"},
      {"param_group_of_other_keys",
       JobWith("lr: 1.0e-3", "param_groups: [{params: [\"*\"], lr: 0}]"),
       "job.yaml:16: optimizer.param_groups[0].weight_decay: missing\n"
       "job.yaml:16: optimizer.param_groups[0].lr: unknown key; known are params, weight_decay"},
      {"learning_rate", JobWith("lr: 1.0e-3", "lr: -1"),
       "job.yaml:16: optimizer.lr: -1 is out of range; use more than 0, e.g. 0.0003"},
  };
}

class WrongJobFile : public ::testing::TestWithParam<WrongFile> {};

void ExpectRefused(const WrongFile& wrong, const std::string& arguments) {
  const JobFolder folder;
  folder.Write("job.yaml", wrong.text);
  folder.Write("short.txt", std::string(20, 'a'));
  const Ran ran = RunWeft(folder, arguments);
  EXPECT_EQ(ran.exit_code, 2);
  std::string error = wrong.error;
  for (size_t at; (at = error.find("FOLDER")) != std::string::npos;) {
    error.replace(at, 6, folder.path());
  }
  const auto lines = 1 + std::count(error.begin(), error.end(), '\n');
  EXPECT_EQ(ran.err, error + "\nweft: " + std::to_string(lines) +
                         (lines == 1 ? " error" : " errors") + "; nothing was started\n");
}

TEST_P(WrongJobFile, IsRefusedWithExitCodeTwo) {
  ExpectRefused(GetParam(), "plan job.yaml");
}

class JobFileOfTheFuture : public ::testing::TestWithParam<WrongFile> {};

TEST_P(JobFileOfTheFuture, IsPlannedButRefusedToRun) {
  const JobFolder folder;
  folder.Write("job.yaml", GetParam().text);
  EXPECT_EQ(RunWeft(folder, "plan job.yaml").exit_code, 0);
  ExpectRefused(GetParam(), "run job.yaml");
}

std::string NameOf(const ::testing::TestParamInfo<WrongFile>& param) {
  return param.param.name;
}

INSTANTIATE_TEST_SUITE_P(NotAJobFile, WrongJobFile, ::testing::ValuesIn(NotAJobFile()), NameOf);
INSTANTIATE_TEST_SUITE_P(NotBuiltYet, WrongJobFile, ::testing::ValuesIn(NotBuiltYet()), NameOf);
INSTANTIATE_TEST_SUITE_P(NotBuiltYet, JobFileOfTheFuture, ::testing::ValuesIn(NotToBeRunYet()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(NotOnThisMachine, WrongJobFile, ::testing::ValuesIn(NotOnThisMachine()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(BrokenRules, WrongJobFile, ::testing::ValuesIn(BrokenRules()), NameOf);

TEST(WrongCommand, IsRefusedWithExitCodeTwo) {
  const JobFolder folder;
  folder.Write("job.yaml", kGoodJob);
  folder.Write("binary.yaml", std::string("\x7f"
                                          "ELF\x02\x01\x01\0\0\0",
                                          10));
  const struct {
    const char* arguments;
    const char* error;
  } cases[] = {
      {"plan nowhere.yaml", "nowhere.yaml: cannot be read: No such file or directory"},
      {"run nowhere.yaml", "nowhere.yaml: cannot be read: No such file or directory"},
      {"plan .", ".: is a folder; name the job file, for example ./job.yaml"},
      {"plan binary.yaml", "binary.yaml:1: "},
      {"plan", "weft: job is required"},
      {"plan job.yaml --nonsense", "weft: The following argument was not expected: --nonsense"},
      {"train job.yaml", "weft: unknown command train; "},
      {"pln job.yaml", "weft: unknown command pln; did you mean plan?\n"},
      {"", "weft: A subcommand is required"},
      {"plan job.yaml --set training.stepz=3",
       "--set training.stepz=3: training.stepz: unknown key"},
      {"plan job.yaml --why ''", "weft: --why: is empty; use e.g. tp=4,pp=2"},
      {"plan job.yaml --layout ''", "weft: --layout: is empty; use e.g. tp=4,pp=2"},
      {"status .", "weft: no run in "},
      {"stop job.yaml", "weft: no run in "},
  };
  for (const auto& each : cases) {
    const Ran ran = RunWeft(folder, each.arguments);
    EXPECT_EQ(ran.exit_code, 2) << each.arguments << ": " << ran.err;
    EXPECT_THAT(ran.err, ::testing::StartsWith(each.error)) << each.arguments;
  }
}

TEST(RightCommand, ExitsWithZeroAndNothingFitsWithThree) {
  const JobFolder folder;
  folder.Write("job.yaml", kGoodJob);
  EXPECT_EQ(RunWeft(folder, "plan job.yaml").exit_code, 0);
  EXPECT_EQ(RunWeft(folder, "plan job.yaml --json").exit_code, 0);
  EXPECT_EQ(RunWeft(folder, "--version").exit_code, 0);
  EXPECT_EQ(RunWeft(folder, "--help").exit_code, 0);
  // 4 layers of width 16384 need far more than 2 GiB a worker.
  const Ran ran = RunWeft(folder, "plan job.yaml --set model.n_embd=16384");
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_THAT(ran.err, ::testing::HasSubstr("weft: nothing fits"));
}

}  // namespace
}  // namespace weft
