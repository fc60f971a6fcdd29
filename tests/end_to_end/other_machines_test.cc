// `weft run` where plain Open MPI 4.1 fails: below another mpirun, with another one's name in PATH,
// on a host without loopback or without room. It trains at the first attempt, or says before it
// starts anything what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/end_to_end/tiny_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFewSteps[] = "training.steps=3";

void ExpectTrained(TinyRun& run, Child& child) {
  const TinyRun::Outcome outcome = TinyRun::Finish(child, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(run.LastStep(), 3);
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() + "/logs/generation-2"))
      << "more than one attempt";
  run.ExpectNothingLeft();
}

void ExpectRefused(TinyRun& run, Child& child, int exit_code, const std::string& says) {
  const TinyRun::Outcome outcome = TinyRun::Finish(child, 240);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(says));
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() + "/logs/generation-1"))
      << "an attempt was made";
  run.ExpectNothingLeft();
}

TEST(OtherMachines, TrainInAShellThatHasAnotherMpirunsVariables) {
  TinyRun run;
  const auto child =
      run.RunUnder({"/usr/bin/env", "OMPI_MCA_ess_base_jobid=1", "OMPI_MCA_ess_base_vpid=0",
                    "OMPI_MCA_ess=pmi", "OMPI_MCA_orte_ess_num_procs=1", "OMPI_COMM_WORLD_SIZE=1",
                    "OMPI_COMM_WORLD_RANK=0", "PMIX_NAMESPACE=12345", "PMIX_RANK=0",
                    "PMIX_SERVER_URI2=pmix-server.1;tcp4://127.0.0.1:1", "PMI_RANK=0"},
                   {"--set", kFewSteps});
  ExpectTrained(run, *child);
}

TEST(OtherMachines, TrainBelowAnMpirunOfOne) {
  TinyRun run;
  const auto child =
      run.RunUnder({"/usr/bin/mpirun", "--allow-run-as-root", "-n", "1"}, {"--set", kFewSteps});
  ExpectTrained(run, *child);
}

TEST(OtherMachines, RefuseToBeStartedTwiceAtOnce) {
  TinyRun run;
  const auto child = run.RunUnder({"/usr/bin/env", "OMPI_COMM_WORLD_SIZE=4"}, {"--set", kFewSteps});
  ExpectRefused(run, *child, 2, "mpirun has started 4 copies of weft run");
}

// Such settings are for runs across hosts.
TEST(OtherMachines, TrainWhateverInterfaceAPersonHasNamed) {
  for (const char* setting :
       {"OMPI_MCA_oob_tcp_if_include=ib0", "OMPI_MCA_oob_tcp_if_exclude=lo"}) {
    SCOPED_TRACE(setting);
    TinyRun run;
    const auto child = run.RunUnder({"/usr/bin/env", setting}, {"--set", kFewSteps});
    ExpectTrained(run, *child);
  }
}

// A scheduler's variables name hosts that are none of this run's.
TEST(OtherMachines, TrainInsideAJobOfSlurmOnThisHostAlone) {
  const std::vector<std::string> job = {"/usr/bin/env",          "SLURM_JOB_ID=7",
                                        "SLURM_JOBID=7",         "SLURM_JOB_NODELIST=elsewhere",
                                        "SLURM_NNODES=1",        "SLURM_NODELIST=elsewhere",
                                        "SLURM_TASKS_PER_NODE=1"};
  TinyRun run;
  const auto child = run.RunUnder(job, {"--set", kFewSteps, "--set", "cluster.scheduler=none"});
  ExpectTrained(run, *child);
  TinyRun other;
  std::vector<std::string> without_srun = job;
  without_srun.emplace_back("PATH=/nowhere");
  const auto refused = other.RunUnder(without_srun, {"--set", kFewSteps});
  ExpectRefused(other, *refused, 1,
                "this is Slurm job 7, but srun, which starts an agent on each of its nodes, is not "
                "in PATH");
  EXPECT_THAT(refused->Stderr(), HasSubstr("--set cluster.scheduler=none"));
}

TEST(OtherMachines, NameTheMpirunThatIsNoneOfOpenMpis) {
  TinyRun run;
  const std::string folder = std::filesystem::path(run.job_path()).parent_path();
  const std::string mpirun = folder + "/bin/mpirun";
  std::filesystem::create_directory(folder + "/bin");
  const auto with = [&](const std::string& words, const std::string& says) {
    std::ofstream(mpirun) << "#!/bin/sh\n" << words << "\n";
    ASSERT_EQ(chmod(mpirun.c_str(), 0700), 0);
    const auto child = run.RunUnder({"/usr/bin/env", "PATH=" + folder + "/bin:/usr/bin:/bin"},
                                    {"--set", kFewSteps});
    ExpectRefused(run, *child, 2, says);
    EXPECT_THAT(child->Stderr(), HasSubstr("weft: nothing was started"));
  };
  with("echo 'HYDRA build details:'; echo '    Version: 4.0.2'",
       mpirun + " is MPICH's (it says: HYDRA build details:)");
  with("echo 'mpirun (Open MPI) 5.0.3'", mpirun + " is Open MPI 5.0.3's; the cpu backend's ranks");
  with("echo broken >&2; exit 3", mpirun + " --version fails with exit code 3: broken");
  const auto without = run.RunUnder({"/usr/bin/env", "PATH=/nowhere"}, {"--set", kFewSteps});
  ExpectRefused(run, *without, 2,
                "no mpirun in PATH; the cpu backend's ranks are started by Open MPI");
}

TEST(OtherMachines, NameALoopbackThatIsDown) {
  TinyRun run;
  const auto child = run.RunUnder({"/usr/bin/unshare", "--net"}, {"--set", kFewSteps});
  if (child->Wait(240) && child->Stderr().find("unshare") != std::string::npos) {
    GTEST_SKIP() << "a network of its own needs root: " << child->Stderr();
  }
  ExpectRefused(run, *child, 2, "this host does not reach itself");
}

TEST(OtherMachines, TrainThoughSharedMemoryIsFull) {
  TinyRun run;
  const auto child =
      run.RunUnder({"/usr/bin/unshare", "--mount", "sh", "-c",
                    "mount -t tmpfs -o size=64k small /dev/shm || exit 99; "
                    "dd if=/dev/zero of=/dev/shm/full bs=4k 2>/dev/null; exec \"$@\"",
                    "sh"},
                   {"--set", kFewSteps});
  const auto ended = child->Wait(240);
  if (ended && (ended->exit_code == 99 || child->Stderr().find("unshare") != std::string::npos)) {
    GTEST_SKIP() << "a file system of its own needs root: " << child->Stderr();
  }
  ExpectTrained(run, *child);
}

// A control group of this process's own with one limit; without a path where none can be made.
class LimitedGroup {
 public:
  // `v1`, `v2`: the limit's file in either kind of hierarchy.
  LimitedGroup(const std::string& controller, const std::string& v1, const std::string& v2,
               int64_t limit) {
    const std::string root = "/sys/fs/cgroup";
    const bool is_v1 = std::filesystem::exists(root + "/" + controller + "/cgroup.procs");
    const std::string folder = root + (is_v1 ? "/" + controller : "") + "/weft-test-" + controller +
                               "-" + std::to_string(getpid());
    std::error_code error;
    if (!std::filesystem::create_directory(folder, error) || error) return;
    path_ = folder;
    std::ofstream file(path_ + "/" + (is_v1 ? v1 : v2));
    file << limit << std::flush;
    if (!file) Remove();
  }
  ~LimitedGroup() { Remove(); }
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> Enter() const {
    return {"/bin/sh", "-c", "echo $$ > " + path_ + "/cgroup.procs; exec \"$@\"", "sh"};
  }

 private:
  void Remove() {
    if (!path_.empty()) rmdir(path_.c_str());
    path_.clear();
  }
  std::string path_;
};

LimitedGroup MemoryGroup(int64_t bytes) {
  return {"memory", "memory.limit_in_bytes", "memory.max", bytes};
}

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(OtherMachines, TrainFourRanksInAMemoryGroupThatHoldsThem) {
  for (const int64_t mib : {1024, 512}) {
    SCOPED_TRACE(mib);
    TinyRun run;
    const LimitedGroup group = MemoryGroup(mib * kMiB);
    if (group.path().empty()) GTEST_SKIP() << "no memory control group can be made here";
    const auto child = run.RunUnder(group.Enter(), {"--set", kFewSteps});
    ExpectTrained(run, *child);
    EXPECT_THAT(child->Stdout(), HasSubstr(" free for 4 ranks\n"));
  }
}

TEST(OtherMachines, NameTheMemoryGroupThatDoesNotHoldTheRanks) {
  TinyRun run;
  const LimitedGroup group = MemoryGroup(160 * kMiB);
  if (group.path().empty()) GTEST_SKIP() << "no memory control group can be made here";
  const auto child = run.RunUnder(group.Enter(), {"--set", kFewSteps});
  ExpectRefused(run, *child, 3, "memory: this machine has 1");
  EXPECT_THAT(child->Stderr(), HasSubstr("128 MiB of weft's own"));
}

// The same happens where /dev/shm fills up once the run has begun.
TEST(OtherMachines, SayThatAMappedFileHadNoRoom) {
  TinyRun run;
  const auto child = run.Run({"--set", TinyRun::kEndless});
  run.WaitForStep(5);
  for (const Found& process : run.Processes("weft")) {
    if (process.command.find(" agent ") != std::string::npos) KillFound(process, SIGBUS);
  }
  const TinyRun::Outcome outcome = TinyRun::Finish(*child, 60);
  EXPECT_EQ(outcome.exit_code, 75) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("signal 7 (SIGBUS): a file that it had mapped has no room"));
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() + "/logs/generation-2"));
  run.ExpectNothingLeft();
}

TEST(OtherMachines, TryAgainWhereAnotherWeftdHoldsTheJournal) {
  TinyRun run;
  const TinyRun::Outcome first = run.RunToEnd({"--set", kFewSteps});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  Child other({BinaryPath("/bin/weftd"), "--journal=" + run.run_folder() + "/journal.db",
               "--socket=" + run.run_folder() + "/other.sock"},
              {}, run.run_folder() + "/other.out", run.run_folder() + "/other.err");
  ASSERT_TRUE(Eventually(kPatienceS, [&] {
    return std::filesystem::exists(run.run_folder() + "/other.sock");
  })) << other.Stderr();
  const TinyRun::Outcome outcome = run.RunToEnd({"--set", "training.steps=6"});
  EXPECT_EQ(outcome.exit_code, 75) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("journal.db: is held by another weftd"));
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() + "/logs/generation-2"));
  other.Signal(SIGTERM);
  EXPECT_TRUE(other.Wait(kPatienceS));
  run.ExpectNothingLeft();
}

TEST(OtherMachines, NameTheGroupThatMayHaveTooFewProcesses) {
  TinyRun run;
  const LimitedGroup group("pids", "pids.max", "pids.max", 60);
  if (group.path().empty()) GTEST_SKIP() << "no control group of processes can be made here";
  const auto child = run.RunUnder(group.Enter(), {"--set", kFewSteps});
  ExpectRefused(run, *child, 1, "pids.max of the control group is 60, which leaves");
}

TEST(OtherMachines, NameTheLimitOfTheShellThatIsTooLow) {
  const auto refused = [](const std::string& limit, int exit_code, const std::string& says) {
    SCOPED_TRACE(limit);
    TinyRun run;
    const auto child = run.RunUnder(
        {"/bin/bash", "-c", "ulimit " + limit + "; exec \"$@\"", "bash"}, {"--set", kFewSteps});
    ExpectRefused(run, *child, exit_code, says);
  };
  refused("-v 700000", 3, "memory: ulimit -v lets a process map 684 MiB");
  refused("-f 100", 1, "ulimit -f lets a file have 100 KiB");
}

}  // namespace
}  // namespace weft
