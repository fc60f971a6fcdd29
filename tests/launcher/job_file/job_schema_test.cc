// The schema of job.yaml is one that another program can use: jsonschema takes every job that weft
// ships, and refuses what a key may not be.
#include "launcher/job_file/job_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "plan/search/search.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/places.h"
#include "tests/plan/keys/full_job.h"

namespace weft {
namespace {

using testing::HasSubstr;

struct Answer {
  int exit_code = -1;
  std::string text;
};

// Returns what a JSON Schema library says of the jobs' files, which are in folders of the test's
// own: other tests write theirs at the same time.
Answer Witness(const std::vector<std::string>& jobs) {
  const JobFolder folder;
  folder.Write("job_schema.json", JobSchema());
  const std::string schema = folder.path() + "/job_schema.json";
  std::string command = absl::StrCat(
      "timeout 60 python3 ", SourcePath("/tests/launcher/job_file/schema_witness.py "), schema);
  for (const std::string& job : jobs) absl::StrAppend(&command, " ", job);
  FILE* const pipe = popen(command.c_str(), "r");
  Answer answer;
  std::array<char, 4096> buffer;
  while (pipe != nullptr && fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    answer.text += buffer.data();
  }
  const int status = pipe != nullptr ? pclose(pipe) : -1;
  if (WIFEXITED(status)) answer.exit_code = WEXITSTATUS(status);
  return answer;
}

TEST(JobSchema, TakesEveryJobThatWeftShips) {
  std::vector<std::string> jobs;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("/configs/jobs"))) {
    if (entry.path().extension() == ".yaml") jobs.push_back(entry.path().string());
  }
  ASSERT_GT(jobs.size(), 4u);
  const Answer answer = Witness(jobs);
  if (answer.exit_code == 77) GTEST_SKIP() << answer.text;
  ASSERT_EQ(answer.exit_code, 0) << answer.text;
  for (const std::string& job : jobs) EXPECT_THAT(answer.text, HasSubstr(job + ": ok\n"));
}

// They are those of every shipped job, and of one in which no key has its default.
TEST(JobSchema, TakesTheResolvedYamlOfARun) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("/configs/jobs"))) {
    if (entry.path().extension() != ".yaml") continue;
    const auto file = ReadJobFile(entry.path().string(), {.check_files = false});
    ASSERT_TRUE(file.ok()) << file.status();
    const auto plan = FindPlan(file->job, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    texts.push_back(
        ResolvedText(Resolve(file->job, plan->layout), {.weft_version = "0", .data = {"a 1:0"}}));
  }
  texts.push_back(ResolvedText(
      FullJob(),
      {.weft_version = "0", .data = {}, .accepted = {"after step 1: optimizer.lr: 1 -> 2"}}));
  const JobFolder folder;
  std::vector<std::string> paths;
  for (const std::string& text : texts) {
    paths.push_back(absl::StrCat(folder.path(), "/resolved_", paths.size(), ".yaml"));
    std::ofstream(paths.back()) << text;
  }
  const Answer answer = Witness(paths);
  if (answer.exit_code == 77) GTEST_SKIP() << answer.text;
  ASSERT_EQ(answer.exit_code, 0) << answer.text;
  for (const std::string& path : paths) EXPECT_THAT(answer.text, HasSubstr(path + ": ok\n"));
}

// The cpu profile, for a key of the job file.
std::string InlineProfile() {
  std::ifstream profile(SourcePath("/configs/clusters/cpu.yaml"));
  std::string text = "cluster:\n  slots: 4\n  profile:\n";
  for (std::string line; std::getline(profile, line);) absl::StrAppend(&text, "    ", line, "\n");
  return text;
}

TEST(JobSchema, TakesWhatTheReaderTakes) {
  const std::string cluster = "cluster: {profile: cpu, slots: 4}\n";
  const std::string degrees = "parallelism: {dp: 2, pp: 2, tp: 1}\n";
  const std::string adam = "optimizer: {lr: 1.0e-3}\n";
  const std::pair<std::string, std::string> cases[] = {
      {adam, "learning_rate: 1e-3\n"},
      {adam, "optimizer: {type: AdamW, params: {lr: 1.0e-3, betas: [0.9, 0.95]}}\n"},
      {adam, "optimizer: {learning_rate: 1.0e-3, name: adamw_torch}\n"},
      {"  steps: 20\n", "tokens: {train_steps: 20}\n"},
      {"  steps: 20\n", "tokens: 5120\n"},
      {"  steps: 20\n", "  steps: 20\n  mixed_precision: Float32\n"},
      {degrees, "parallelism: {dp: Auto, pp: AUTO, tp: 1, pp_schedule: GPipe}\n"},
      {degrees, degrees + "zero_optimization: {stage: 1}\ncheckpoint: {folder: ~}\n"},
      {"n_embd: 32", "hidden_size: 32"},
      {"n_head: 4\n",
       "n_head: 4\n  architectures: [GPT2LMHeadModel]\n  _name_or_path: gpt2\n"
       "  torch_dtype: float32\n  resid_pdrop: 0.1\n  n_inner: null\n  n_ctx: 64\n"},
      {cluster, InlineProfile()},
      {cluster, cluster + "resolved: {format_version: 1, run_id: \"a\"}\n"},
  };
  const JobFolder folder;
  std::vector<std::string> paths;
  for (const auto& [from, to] : cases) {
    const std::string text = JobWith(from, to);
    const auto read = ReadJobText(text, "job.yaml", {.check_files = false});
    EXPECT_TRUE(read.ok()) << read.status() << text;
    paths.push_back(absl::StrCat(folder.path(), "/taken_", paths.size(), ".yaml"));
    std::ofstream(paths.back()) << text;
  }
  const Answer answer = Witness(paths);
  if (answer.exit_code == 77) GTEST_SKIP() << answer.text;
  ASSERT_EQ(answer.exit_code, 0) << answer.text;
  const std::vector<std::string> lines = absl::StrSplit(answer.text, '\n');
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(lines[i], paths[i] + ": ok") << cases[i].second;
  }
}

TEST(JobSchema, RefusesWhatAKeyMayNotBe) {
  struct Case {
    const char* from;
    const char* to;
    const char* where;  // empty: the job as it is
  };
  const Case cases[] = {
      {"lr: 1.0e-3", "lr: 1.0e-3", ""},
      {"lr: 1.0e-3", "lr: 0", "optimizer.lr"},
      {"lr: 1.0e-3", "lr: [1]", "optimizer.lr"},
      {"lr: 1.0e-3", "lr: 1.0e-3, learning: 1", "optimizer"},
      {"lr: 1.0e-3", "lr: 1.0e-3, name: adam", "optimizer.name"},
      {"lr: 1.0e-3", "lr: 1.0e-3, betas: [0.9, 1]", "optimizer.betas"},
      {"steps: 20", "steps: 0", "training.steps"},
      {"steps: 20", "steps: auto", "training.steps"},
      {"steps: 20", "steps: 20\n  micro_batch_size: auto", ""},
      {"steps: 20", "steps: 20\n  seed: 1.5", "training.seed"},
      {"n_embd: 32", "n_embd: wide", "model.n_embd"},
      {"n_embd: 32", "n_embd: 32\n  n_embdd: 32", "model"},
      {"n_embd: 32", "n_embd: 32\n  activation_function: relu", "model.activation_function"},
      {"n_embd: 32", "n_embd: 32\n  sliding_window: 1.5", "model.sliding_window"},
      {"profile: cpu", "profile: {name: lab}", "cluster.profile"},
      {"profile: cpu", "profile: {nam: lab}", "cluster.profile"},
      {"profile: cpu", "profile: 3", "cluster.profile"},
      {"parallelism: {dp: 2", "parallelism: {dp: automatic", "parallelism.dp"},
      {"parallelism: {", "parallelism: {pp_schedule: 1f2b, ", "parallelism.pp_schedule"},
      {"optimizer: {lr: 1.0e-3}", "learning_rate: fast", "learning_rate"},
      {"training:", "trainings:", ": "},
  };
  const JobFolder folder;
  std::vector<std::string> paths;
  for (const Case& c : cases) {
    paths.push_back(absl::StrCat(folder.path(), "/schema_case_", paths.size(), ".yaml"));
    std::ofstream(paths.back()) << JobWith(c.from, c.to);
  }
  const Answer answer = Witness(paths);
  if (answer.exit_code == 77) GTEST_SKIP() << answer.text;
  ASSERT_EQ(answer.exit_code, 0) << answer.text;
  const std::vector<std::string> lines = absl::StrSplit(answer.text, '\n');
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string where = cases[i].where;
    EXPECT_THAT(lines[i], HasSubstr(where.empty() ? ": ok" : absl::StrCat(": ", where)))
        << cases[i].to;
  }
}

TEST(KeysJson, HasARowForEachKey) {
  std::vector<const JobKey*> all;
  for (const JobKey& key : JobKeys()) all.push_back(&key);
  const auto json = nlohmann::json::parse(KeysJson(all));
  ASSERT_EQ(json.size(), JobKeys().size());
  const auto lr = *std::find_if(json.begin(), json.end(),
                                [](const auto& key) { return key["key"] == "optimizer.lr"; });
  EXPECT_EQ(lr["default"], "3e-04");
  EXPECT_EQ(lr["mathematics"], true);
  EXPECT_EQ(lr["allowed"], "more than 0, e.g. 0.0003");
  EXPECT_THAT(lr["aliases"], testing::Contains("learning_rate"));
}

}  // namespace
}  // namespace weft
