// `weft plan` prints what people read before they rent machines: here whole, from the files that we
// ship, by the real executable; for clusters of profiles, not for the machine that tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/golden/golden.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/places.h"

namespace weft {
namespace {

struct Case {
  const char* golden;
  const char* arguments;
  int exit_code;
};

const Case kCases[] = {
    {"weft_plan_gpt2_124m.txt",
     "configs/jobs/gpt2-124m.yaml --cluster a100-40gx8 --nodes 1 --explain 6", 0},
    {"weft_plan_llama3_8b.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --explain 8", 0},
    {"weft_plan_llama3_8b_why.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --why tp=8,pp=2", 0},
    {"weft_plan_llama3_8b_layout.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --layout "
     "tp=2,pp=4,dp=4,micro_batch_size=1 --engine megatron",
     0},
    {"weft_plan_llama3_8b_without_a_node.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --without-nodes 1 --explain 2", 0},
    {"weft_plan_llama3_8b_parts.txt",
     "configs/jobs/llama3-8b.yaml --parts h100x8:2,a100-80gx8:4,rtx4090x8:4 --set "
     "training.global_batch_size=512",
     0},
    {"weft_plan_gpt2_124m_pinned_why.txt",
     "configs/jobs/gpt2-124m.yaml --cluster a100-40gx8 --nodes 1 --set parallelism.pp=2 "
     "--why pp=1",
     0},
    {"weft_plan_lora_layout.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 1 --set 'lora={r: 16}' --layout "
     "dp=8,zero_stage=3,micro_batch_size=1",
     0},
    {"weft_plan_nearest_values.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --set parallelism.pp=1 "
     "--set parallelism.tp=1 --set parallelism.zero_stage=0 --set offload.optimizer=none",
     3},
    {"weft_plan_nothing_fits.txt",
     "configs/jobs/llama3-8b.yaml --cluster rtx4090x8 --nodes 1 --set parallelism.pp=1 "
     "--set parallelism.tp=1 --set parallelism.zero_stage=0 --set offload.optimizer=none",
     3},
};

TEST(WeftPlan, PrintsWhatItAlwaysDid) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.arguments);
    const JobFolder folder;
    const Ran printed = RunWeft(folder, absl::StrCat("plan ", c.arguments, " --without-data"),
                                {.directory = SourcePath()});
    EXPECT_EQ(printed.exit_code, c.exit_code) << printed.err;
    for (const absl::string_view line : absl::StrSplit(printed.out, '\n')) {
      EXPECT_LE(line.size(), 100U) << line;
    }
    ExpectGolden(c.golden, printed.err.empty()
                               ? printed.out
                               : absl::StrCat(printed.out, "stderr:\n", printed.err));
  }
}

TEST(WeftPlan, SaysInJsonWhatEachKindOfDeviceDoes) {
  const JobFolder folder;
  const Ran printed = RunWeft(folder,
                              "plan configs/jobs/llama3-8b.yaml --without-data --json --parts "
                              "h100x8:2,a100-80gx8:4",
                              {.directory = SourcePath()});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const nlohmann::json json = nlohmann::json::parse(printed.out);
  const auto& parts = json["plan"]["parts"];
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]["part"], "h100x8");
  EXPECT_EQ(parts[1]["of_devices"], 32);
  EXPECT_GT(json["plan"]["tokens_per_s"], 0);
  EXPECT_EQ(json["alone"].size(), 2u);
  EXPECT_EQ(json["plan"]["layout"]["world_size"].get<int>(),
            parts[0]["devices"].get<int>() + parts[1]["devices"].get<int>());
}

TEST(WeftPlan, RefusesPartsThatItCannotRead) {
  const JobFolder folder;
  const std::pair<const char*, const char*> refusals[] = {
      {"h100x8", "--parts: \"h100x8\" is not CLUSTER:NODES"},
      {"h100x8:0,a100-80gx8:1", "--parts: \"h100x8:0\" is not"},
      {"h100x8:2,b100x8:2", "found no readable profile b100x8"},
      {"h100x8:2", "--parts: parts: 1 were given; use 2 to 4"},
      {"h100x8:2,cpu:2", "--parts: part cpu: "},
      {"h100x8:2,a100-80gx8:2 --nodes 3", "leave out --cluster, --nodes"},
      {"h100x8:2,a100-80gx8:2 --why tp=2", "excludes"},
  };
  for (const auto& [parts, says] : refusals) {
    const Ran ran = RunWeft(
        folder, absl::StrCat("plan configs/jobs/llama3-8b.yaml --without-data --parts ", parts),
        {.directory = SourcePath()});
    EXPECT_EQ(ran.exit_code, 2) << parts;
    EXPECT_THAT(ran.err, testing::HasSubstr(says)) << parts;
    EXPECT_EQ(ran.out, "") << parts;
  }
}

TEST(WeftPlan, SaysInJsonWhichRankWouldBeOnWhichHost) {
  const JobFolder folder;
  const Ran printed =
      RunWeft(folder, "plan configs/jobs/quickstart.yaml --without-data --json --hosts a,b:2,c:2",
              {.directory = SourcePath()});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const nlohmann::json json = nlohmann::json::parse(printed.out);
  EXPECT_EQ(json["placement"]["hosts"], nlohmann::json::parse(R"([
      {"host": "a", "slots": 2, "failure_domain": null, "ranks": [0, 1]},
      {"host": "b", "slots": 2, "failure_domain": null, "ranks": [2, 3]},
      {"host": "c", "slots": 2, "failure_domain": null, "ranks": []}])"));
  EXPECT_EQ(json["notes"][0], "cluster.slots: 2 in place of 4; one of the named hosts has no more");
}

TEST(WeftPlan, RefusesALayoutThatTheNamedHostsHaveNoPlaceFor) {
  const JobFolder folder;
  const Ran printed =
      RunWeft(folder,
              "plan configs/jobs/quickstart.yaml --without-data --layout dp=2 --hosts a:1 "
              "--set parallelism.dp=1 --set parallelism.pp=1",
              {.directory = SourcePath()});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_THAT(printed.err, ::testing::HasSubstr("2 ranks have no place on 1 host of 1 slot "));
}

}  // namespace
}  // namespace weft
