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

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using testing::HasSubstr;

struct Answer {
  int exit_code = -1;
  std::string text;
};

Answer Witness(const std::vector<std::string>& jobs) {
  const std::string schema = testing::TempDir() + "/job_schema.json";
  std::ofstream(schema) << JobSchema();
  std::string command = absl::StrCat("timeout 60 python3 ", WEFT_SOURCE_DIR,
                                     "/tests/launcher/job_file/schema_witness.py ", schema);
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
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/configs/jobs")) {
    if (entry.path().extension() == ".yaml") jobs.push_back(entry.path().string());
  }
  ASSERT_GT(jobs.size(), 4u);
  const Answer answer = Witness(jobs);
  if (answer.exit_code == 77) GTEST_SKIP() << answer.text;
  ASSERT_EQ(answer.exit_code, 0) << answer.text;
  for (const std::string& job : jobs) EXPECT_THAT(answer.text, HasSubstr(job + ": ok\n"));
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
  };
  std::vector<std::string> paths;
  for (const Case& c : cases) {
    paths.push_back(absl::StrCat(testing::TempDir(), "/schema_case_", paths.size(), ".yaml"));
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
