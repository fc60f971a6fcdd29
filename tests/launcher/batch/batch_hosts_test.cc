// Hosts of PBS, LSF and Flux, from files and variables as these write them.
#include "launcher/batch/batch_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct World {
  std::map<std::string, std::string> variables = {};
  std::map<std::string, std::string> files = {};
  std::string flux = {};

  absl::StatusOr<std::optional<BatchHosts>> Find() const {
    return FindBatchHosts(
        {.variable =
             [this](const char* name) {
               const auto found = variables.find(name);
               return found == variables.end() ? nullptr : found->second.c_str();
             },
         .read_file = [this](const std::string& path) -> absl::StatusOr<std::string> {
           const auto found = files.find(path);
           if (found == files.end()) return absl::NotFoundError("no such file");
           return found->second;
         },
         .flux_resources = [this]() -> absl::StatusOr<std::string> {
           if (flux.empty()) return absl::NotFoundError("flux is not in PATH");
           return flux;
         }});
  }
};

constexpr char kResources[] =
    R"({"version": 1, "execution": {"R_lite": [{"rank": "0-1,3", "children": {"core": "0-47"}},
        {"rank": "2", "children": {"core": "0-47", "gpu": "0-3"}}],
        "starttime": 0.0, "expiration": 0.0, "nodelist": ["corona[12-14]", "big1"]}})";

TEST(FindBatchHosts, FindsNoneWhereThereIsNoJob) {
  const auto found = World{.variables = {{"FLUX_URI", "local:///run/flux/local"}}}.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value());
}

// A line for each of ncpus or mpiprocs, as the site has it.
TEST(FindBatchHosts, ReadsTheFileOfPbs) {
  const World world{.variables = {{"PBS_JOBID", "17.head"}, {"PBS_NODEFILE", "/aux/17"}},
                    .files = {{"/aux/17", "n1.lab\nn1.lab\nn2.lab\n\nn1.lab\n"}}};
  const auto found = world.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->system, "PBS");
  EXPECT_EQ((*found)->job_id, "17.head");
  EXPECT_THAT((*found)->hosts, ElementsAre("n1.lab", "n2.lab"));
}

TEST(FindBatchHosts, ReadsTheVariableOfLsfOrItsFile) {
  World world{.variables = {{"LSB_JOBID", "17"}, {"LSB_MCPU_HOSTS", "hostA 4 hostB 8 hostA 1 "}}};
  auto found = world.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->system, "LSF");
  EXPECT_THAT((*found)->hosts, ElementsAre("hostA", "hostB"));
  world.variables = {{"LSB_JOBID", "17"}, {"LSB_DJOB_HOSTFILE", "/h"}};
  world.files = {{"/h", "b1\nb1\nb2\n"}};
  found = world.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT((*found)->hosts, ElementsAre("b1", "b2"));
}

TEST(FindBatchHosts, ReadsTheResourcesOfFlux) {
  const World world{.variables = {{"FLUX_URI", "local:///x"}, {"FLUX_ENCLOSING_ID", "f2e7"}},
                    .flux = kResources};
  const auto found = world.Find();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->system, "Flux");
  EXPECT_EQ((*found)->job_id, "f2e7");
  EXPECT_THAT((*found)->hosts, ElementsAre("corona12", "corona13", "corona14", "big1"));
  EXPECT_THAT((*found)->flux_ranks, ElementsAre(0, 1, 2, 3));
}

TEST(FindBatchHosts, SaysWhatCannotBeRead) {
  struct Case {
    World world;
    const char* said;
  };
  const std::map<std::string, std::string> pbs = {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "/f"}};
  const std::map<std::string, std::string> flux = {{"FLUX_URI", "x"}, {"FLUX_ENCLOSING_ID", "f"}};
  for (const Case& each : {
           Case{{.variables = {{"PBS_JOBID", "1"}}}, "PBS_NODEFILE: is not set; name the hosts"},
           Case{{.variables = pbs}, "PBS_NODEFILE: /f: no such file; name the hosts by --hosts"},
           Case{{.variables = pbs, .files = {{"/f", "\n"}}}, "/f: there is no host in it"},
           Case{{.variables = pbs, .files = {{"/f", "n1 4\n"}}}, "\"n1 4\" is no name of a host"},
           Case{{.variables = {{"LSB_JOBID", "1"}}},
                "LSB_MCPU_HOSTS: and LSB_DJOB_HOSTFILE are not set"},
           Case{{.variables = {{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "a b 2"}}},
                "\"a\" has no number behind it"},
           Case{{.variables = {{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "a 2 b"}}},
                "\"b\" has no number behind it"},
           Case{{.variables = flux}, "flux resource R: flux is not in PATH"},
           Case{{.variables = flux, .flux = "{}"}, "flux resource R: is no resource set"},
           Case{{.variables = flux, .flux = "["}, "flux resource R: is no resource set"},
           Case{{.variables = flux,
           .flux = R"({"version": 1, "execution": {"R_lite": [{"rank": "0-1"}],
                         "nodelist": ["a"]}})"},
                "has 2 ranks but 1 hosts"},
           Case{{.variables = flux,
           .flux = R"({"version": 1, "execution": {"R_lite": [{"rank": "0-"}],
                         "nodelist": ["a"]}})"},
                "flux resource R: "},
       }) {
    const auto found = each.world.Find();
    ASSERT_FALSE(found.ok()) << each.said;
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << each.said;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(each.said));
  }
}

}  // namespace
}  // namespace weft
