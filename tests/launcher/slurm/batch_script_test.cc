// Batch scripts, letter by letter; tests/slurm has a real sbatch look at the same files.
#include "launcher/slurm/batch_script.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/job_file/job_yaml.h"
#include "plan/search/search.h"
#include "tests/golden/golden.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/submitted_jobs.h"
#include "tests/places.h"

namespace weft {
namespace {

struct Spec {
  const char* name;
  const char* model;
  const char* cluster;  // beside the scheduler
  std::vector<std::string> array = {};
  std::vector<std::string> after = {};
};

const Spec kSpecs[] = {
    {"one_node", kTiny, "profile: cpu, slots: 2"},
    {"three_nodes", kTiny, "profile: cpu, slots: 2, nodes: 3"},
    {"min_max", kTiny, "profile: cpu, slots: 2, nodes: '2:3'"},
    {"spares", kTiny, "profile: cpu, slots: 2, nodes: 2, spares: 1"},
    {"threads", kTiny, "profile: cpu, slots: 2, threads_per_worker: 2, nodes: 2"},
    {"site", kTiny,
     "profile: cpu, slots: 2, nodes: 2, partition: high, account: lab, qos: normal, exclude: h3, "
     "time: '01:00:00', dependency: singleton"},
    {"reservation", kTiny, "profile: cpu, slots: 2, reservation: class, time: 30"},
    {"options", kTiny,
     "profile: cpu, slots: 1, sbatch_options: --mail-type=END --nice=10 --exclusive"},
    {"setup", kTiny, "profile: cpu, slots: 2, setup: \"module load gcc\\nulimit -l unlimited\""},
    {"remote_path", kTiny, "profile: cpu, slots: 2, remote_path: /sw/weft/bin"},
    {"gpus", kLarge, "profile: h100x8, nodes: 2, partition: gpu, time: 2-12"},
    {"features", kLarge,
     "profile: h100x8, nodes: 2, partition: gpu, constraint: h100&ib, container: "
     "apptainer exec --nv weft.sif"},
    {"array",
     kTiny,
     "profile: cpu, slots: 2, nodes: 2",
     {"optimizer.lr=1e-3,1e-4", "training.seed=1,2,3"}},
    {"after", kTiny, "profile: cpu, slots: 2, dependency: singleton", {}, {"1"}},
};

TEST(BatchScript, AsksForWhatTheJobNeeds) {
  for (const Spec& spec : kSpecs) {
    SCOPED_TRACE(spec.name);
    const std::string yaml = std::string("job: {name: tiny, output_dir: /shared/runs}\n") +
                             spec.model + "cluster: {scheduler: slurm, " + spec.cluster + "}\n";
    const auto file =
        ReadJobText(yaml, SourcePath("/configs/jobs/job.yaml"), {.check_files = false});
    ASSERT_TRUE(file.ok()) << file.status();
    const auto plan = FindPlan(file->job, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto lists = ArrayTasks(spec.array);
    const auto after = AfterText(spec.after, file->job.scheduler.dependency);
    ASSERT_TRUE(lists.ok() && after.ok()) << lists.status() << after.status();
    std::vector<std::string> tasks;
    for (size_t task = 0; task < lists->size() && !spec.array.empty(); ++task) {
      tasks.push_back(TaskFolder("/shared/runs/" + file->job.name, static_cast<int>(task)));
    }
    const std::string& there = file->job.hosts.remote_path;
    const BatchWords words{.program = (there.empty() ? "/opt/weft/bin" : there) + "/weft",
                           .run_folder = "/shared/runs/" + file->job.name,
                           .save_s = 4,
                           .after = *after,
                           .tasks = tasks};
    ExpectGolden(std::string("sbatch_") + spec.name + ".sh", BatchScript(file->job, *plan, words));
  }
}

// Runs the script with an scontrol whose RequeueExit is `codes`; returns how often it has requeued.
int Requeues(const std::string& codes, int weft_exits) {
  const JobFolder own;
  const std::filesystem::path folder = own.path();
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  };
  write("weft", "exit " + std::to_string(weft_exits));
  const std::string requeued = folder / "requeued";
  write("scontrol", "[ $1 = show ] || { echo $2 >> " + requeued + "; exit; }\n" +
                        "echo 'RebootProgram           = (null)'\n" +
                        "echo 'RequeueExit             = " + codes + "'\n" +
                        "echo 'RequeueExitHold         = 75'");
  const std::string yaml = std::string("job: {name: tiny, output_dir: /shared/runs}\n") + kTiny +
                           "cluster: {scheduler: slurm, profile: cpu, slots: 2}\n";
  const auto file = ReadJobText(yaml, SourcePath("/configs/jobs/job.yaml"), {.check_files = false});
  const auto plan = FindPlan(file->job, Purpose::kEstimate);
  std::ofstream(folder / "script.sh")
      << BatchScript(file->job, *plan, {.program = folder / "weft"});
  const std::string command =
      "PATH=" + folder.string() + ":$PATH SLURM_JOB_ID=7 bash " + (folder / "script.sh").string();
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == weft_exits) << codes << ": " << status;
  std::ifstream lines(requeued);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line, "7");
  return count;
}

// Slurm prints RequeueExit as it is written: codes and ranges of them.
TEST(BatchScript, IsRequeuedByTheSiteOrByItselfButNotByBoth) {
  for (const char* codes : {"75", "1-9,75", "70-80", "1-10,70-75", "75-80,90", "3,75-75"}) {
    EXPECT_EQ(Requeues(codes, 75), 0) << codes;
  }
  for (const char* codes : {"(null)", "", "175", "7,5", "1-74", "76-80", "1-74,76-99", "750-760"}) {
    EXPECT_EQ(Requeues(codes, 75), 1) << codes;
  }
  EXPECT_EQ(Requeues("(null)", 1), 0);
}

TEST(BatchScript, ReadsTimesAsSlurmDoes) {
  const std::pair<const char*, int64_t> cases[] = {
      {"60", 3600},       {"1:30", 90}, {"1:00:00", 3600}, {"2-12", 216000}, {"1-00:30", 88200},
      {"1-1:1:1", 90061}, {"", 0},      {"a", 0},          {"1:2:3:4", 0}};
  for (const auto& [text, seconds] : cases) EXPECT_EQ(LimitSeconds(text), seconds) << text;
}

TEST(BatchScript, IsToldOfTheEndInTime) {
  EXPECT_EQ(NoticeSeconds(0.5, 2, ""), 45);
  EXPECT_EQ(NoticeSeconds(30, 120, ""), 340);
  EXPECT_EQ(NoticeSeconds(30, 120, "4"), 60) << "a quarter of the limit";
  EXPECT_EQ(NoticeSeconds(30, 120, "0:20"), 10) << "never less";
  EXPECT_EQ(NoticeSeconds(1e9, 1, ""), 65535) << "sbatch takes no more";
}

}  // namespace
}  // namespace weft
