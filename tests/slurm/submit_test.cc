// From job.yaml to a job of Slurm's: its losses are those of a run without Slurm, and whatever is
// wrong with it is said in one sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "launcher/slurm/node_list.h"
#include "tests/places.h"
#include "tests/slurm/slurm_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST_F(SlurmRun, GivesTheVeryLossesOfALocalRun) {
  const std::map<int64_t, std::string> alone = LocalCurve();
  const std::string job = Submit(WriteJob({}));
  AwaitCompleted(job);
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(LastGeneration(), 1);
  const std::string log = ReadText(folder() + "/logs/slurm-" + job + ".log");
  EXPECT_THAT(log, HasSubstr("done: step 60 of 60"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("accounting"))) << "it is off";
}

// README says it so to somebody who has a cluster.
TEST_F(SlurmRun, TakesTwoCommandsFromAJobFileToTwoNodes) {
  const std::string file = WriteJob({.parallelism = "dp: 2, pp: 2, tp: 1",
                                     .cluster = "slots: 2, nodes: 2, scheduler: slurm",
                                     .steps = 20});
  const HostBed::Answer plan = Weft("plan " + file);
  EXPECT_EQ(plan.exit_code, 0) << plan.out << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("2 nodes"));
  const std::string job = Submit(file);
  AwaitCompleted(job);
  EXPECT_EQ(Curve().size(), 20U);
  const std::string log = ReadText(folder() + "/logs/slurm-" + job + ".log");
  EXPECT_THAT(log, HasSubstr("done: step 20 of 20"));
}

TEST_F(SlurmRun, TrainsInAnAllocationOfItsOwn) {
  const std::map<int64_t, std::string> alone = LocalCurve();
  const std::string job = WriteJob({});
  const HostBed::Answer answer =
      bed_->hosts().Run(SlurmBed::kHead, "cd " + bed_->shared() + " && salloc --quiet -N3 -c2 " +
                                             BinaryPath("/bin/weft") + " run " + job);
  EXPECT_EQ(answer.exit_code, 0) << answer.out << answer.err;
  EXPECT_EQ(Curve(), alone);
}

TEST_F(SlurmRun, TakesTwoJobsSideBySide) {
  const std::string first = Submit(WriteJob({}));
  const std::string second = Submit(WriteJob({.name = "other"}));
  AwaitCompleted(first);
  AwaitCompleted(second);
  EXPECT_EQ(Curve(), Curve("other")) << Words("other");
  EXPECT_EQ(Curve().size(), 60U);
}

TEST_F(SlurmRun, RunsAnArrayInFoldersOfItsOwn) {
  const std::map<int64_t, std::string> alone = LocalCurve();
  const std::string job = Submit(WriteJob({}), "--array training.seed=42,43");
  AwaitCompleted(job + "_0");
  AwaitCompleted(job + "_1");
  EXPECT_EQ(Curve("tiny/tiny-0"), alone);
  EXPECT_EQ(Curve("tiny/tiny-1").size(), alone.size());
  EXPECT_NE(Curve("tiny/tiny-1"), alone);
  EXPECT_THAT(ReadText(folder() + "/slurm-" + job + "_1.log"), HasSubstr("done: step 60 of 60"));
  const std::string listed = Weft("ps --all").out;
  for (const char* task : {"_0", "_1"}) {
    EXPECT_THAT(listed, ::testing::ContainsRegex(job + task + " +COMPLETED +60 ")) << listed;
  }
}

TEST_F(SlurmRun, SaysWhatIsWrongWithAJob) {
  struct Case {
    const char* name;
    std::string cluster;
    const char* said;
  };
  for (const Case& each : {
           Case{"partition", "partition: fast", "cluster.partition: fast is no partition"},
           Case{"exclude", "exclude: h9", "cluster.exclude: h9 names a node"},
           Case{"dependency", "dependency: nonsense", "cluster.dependency: nonsense is no"},
           Case{"feature", "constraint: gold", "cluster.constraint: gold names a feature"},
           Case{"option", "sbatch_options: --colour", "an option that sbatch does not know"},
           Case{"time", "time: 9-9-9", "cluster.time: 9-9-9 is no time to Slurm"},
           Case{"reservation", "reservation: none", "cluster.reservation: none is no reservation"},
       }) {
    const HostBed::Answer answer =
        Weft("submit " + WriteJob({.name = each.name,
                                   .parallelism = "dp: auto",
                                   .cluster = "scheduler: slurm, " + each.cluster}));
    EXPECT_EQ(answer.exit_code, 2) << each.name << answer.out;
    EXPECT_THAT(answer.err, HasSubstr(each.said)) << each.name;
    EXPECT_THAT(answer.err, ::testing::StartsWith("weft: ")) << each.name;
  }
  const std::string job = WriteJob({});
  const HostBed::Answer no_slurm = bed_->hosts().Run(
      SlurmBed::kHead, "PATH=/nowhere " + BinaryPath("/bin/weft") + " submit " + job);
  EXPECT_THAT(no_slurm.err, HasSubstr("sbatch is not in PATH; submit from a login node"));
  const HostBed::Answer not_shared = Weft("submit " + job + " --run-folder /tmp/run");
  EXPECT_THAT(not_shared.err, HasSubstr("/tmp/run is on this host alone; name a folder"));
  EXPECT_EQ(not_shared.exit_code, 2);
}

// Slurm believes that each node has 4 CPUs, 4000 MiB and 8 GPUs.
TEST_F(SlurmRun, RefusesWhatNoNodeOfThePartitionHas) {
  struct Case {
    const char* name;
    const char* parallelism;
    std::string cluster;
    const char* said;
    const char* options = "";
  };
  for (const Case& each : {
           Case{"slots", "dp: auto", "slots: 6",
                "cluster.slots: 6 workers of 1 thread take 6 CPUs of a node, but nodes of "
                "partition low have 4; write 4 or fewer"},
           Case{"nodes", "dp: auto", "slots: 1, nodes: 6, partition: high",
                "cluster.nodes: 6 are needed but partition high has 3 (h1, h2, h3); write fewer"},
           Case{"gpus", "dp: auto, pp: 2, tp: 1", "gpus_per_node: 12, partition: gpu",
                "cluster.gpus_per_node: 12 but nodes of partition gpu have 8 GPUs; write as many",
                " --set cluster.profile=h100x8"},
       }) {
    const HostBed::Answer answer = Weft("submit " +
                                        WriteJob({.name = each.name,
                                                  .parallelism = each.parallelism,
                                                  .cluster = "scheduler: slurm, " + each.cluster}) +
                                        each.options);
    EXPECT_EQ(answer.exit_code, 2) << each.name << answer.out;
    EXPECT_THAT(answer.err, HasSubstr(each.said)) << each.name;
  }
  EXPECT_EQ(bed_->Head("squeue -h"), "");
}

class SlurmTopology : public SlurmRun {
 protected:
  std::string MoreOfSlurm() const override { return "TopologyPlugin=topology/tree\n"; }
};

TEST_F(SlurmTopology, MakesFailureDomains) {
  const std::map<int64_t, std::string> alone = LocalCurve();
  const std::string job = Submit(WriteJob({}));
  AwaitCompleted(job);
  EXPECT_EQ(Curve(), alone);
  EXPECT_THAT(ReadText(folder() + "/logs/slurm-" + job + ".log"),
              HasSubstr("topology: h1, h3 on s1; h2 on s2\n"));
}

// A program in scontrol's place answers as one does that may not be asked.
TEST_F(SlurmTopology, IsWhatEachTaskIsToldWhereScontrolIsSilent) {
  const std::string bin = bed_->shared() + "/bin";
  bed_->Head("mkdir " + bin + " && printf '%s\\n' '#!/bin/sh' " +
             "'[ \"$2\" = topology ] && exit 1' 'exec /usr/bin/scontrol \"$@\"' > " + bin +
             "/scontrol && chmod +x " + bin + "/scontrol");
  SlurmJobWords words;
  words.cluster += ", setup: 'export PATH=" + bin + ":$PATH'";
  const std::string job = Submit(WriteJob(words));
  AwaitCompleted(job);
  EXPECT_THAT(ReadText(folder() + "/logs/slurm-" + job + ".log"),
              ::testing::Not(HasSubstr("topology: ")));
  for (const auto& [host, leaf] : {std::pair("h1", "s1"), {"h2", "s2"}, {"h3", "s1"}}) {
    EXPECT_THAT(ReadText(folder() + "/logs/agent-" + host + ".log"),
                HasSubstr(std::string(", domain ") + leaf + "\n"));
  }
}

TEST_F(SlurmRun, RefusesAHeterogeneousJob) {
  const HostBed::Answer answer =
      bed_->hosts().Run(SlurmBed::kHead, "cd " + bed_->shared() + " && salloc --quiet -N1 : -N1 " +
                                             BinaryPath("/bin/weft") + " run " + WriteJob({}));
  EXPECT_EQ(answer.exit_code, 2) << answer.out;
  EXPECT_THAT(answer.err, HasSubstr("is a heterogeneous one of 2 components, but weft trains in "
                                    "one alone; ask for all nodes in one component"));
}

TEST_F(SlurmRun, SaysThatSrunIsNotThere) {
  const HostBed::Answer answer =
      bed_->hosts().Run(SlurmBed::kHead, "cd " + bed_->shared() +
                                             " && salloc --quiet -N1 /usr/bin/env PATH=/nowhere " +
                                             BinaryPath("/bin/weft") + " run " + WriteJob({}));
  EXPECT_EQ(answer.exit_code, 1) << answer.out;
  EXPECT_THAT(answer.err, HasSubstr("but srun, which starts an agent on each of its nodes, is not "
                                    "in PATH; load Slurm's module"));
}

// There is no slurmdbd here: a program in sacct's place answers as one does that has it.
TEST_F(SlurmRun, ReportsWhatAccountingSays) {
  const std::string bin = bed_->shared() + "/bin";
  bed_->Head("mkdir " + bin + " && printf '%s\\n' '#!/bin/sh' 'id=${3#--jobs=}' " +
             "'echo \"$id|65|05:10.400||12000\"' 'echo \"$id.0|64|05:10.400|325000K|12000\"' > " +
             bin + "/sacct && chmod +x " + bin + "/sacct");
  SlurmJobWords words;
  words.cluster += ", setup: 'export PATH=" + bin + ":$PATH'";
  const std::string job = Submit(WriteJob(words));
  AwaitCompleted(job);
  EXPECT_THAT(ReadText(folder() + "/logs/slurm-" + job + ".log"),
              HasSubstr("slurm: accounting: 1:05 elapsed, 5:10 of CPU time, 317 MiB in the "
                        "largest task, 12 kJ\n"));
}

TEST_F(SlurmRun, SaysWhyAJobIsHeld) {
  const HostBed::Answer answer =
      Weft("submit " + WriteJob({.cluster = "nodes: 3, slots: 2, scheduler: slurm, sbatch_options: "
                                            "--hold"}));
  EXPECT_THAT(answer.out, HasSubstr("PENDING: JobHeldUser: it is held; let it go by"));
  EXPECT_THAT(Weft("status " + folder()).out,
              HasSubstr(" is PENDING: JobHeldUser: it is held; let it go by"));
  const HostBed::Answer again = Weft("submit " + bed_->shared() + "/tiny.yaml");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("has it and is PENDING; wait for its end, or end it"));
}

TEST_F(SlurmRun, NamesANodeWithoutWeft) {
  const std::string job =
      Submit(WriteJob({.cluster = "slots: 2, nodes: 3, scheduler: slurm, remote_path: /opt/none"}));
  EXPECT_EQ(bed_->AwaitState(job, {"FAILED"}, kPatienceS), "FAILED");
  EXPECT_THAT(ReadText(folder() + "/logs/slurm-" + job + ".log"),
              HasSubstr("weft: host h1: /opt/none/weft is not there; install weft"));
  EXPECT_THAT(Weft("status " + folder()).out,
              HasSubstr(" is FAILED: NonZeroExitCode: weft has ended with an error; logs/slurm-"));
}

// The head has a file system there that nodes do not mount.
TEST_F(SlurmRun, SaysThatNodesDoNotHaveTheRunFolder) {
  const std::string own = bed_->shared() + "/own";
  bed_->Head("mkdir " + own + " && mount -t tmpfs tmpfs " + own);
  const std::string job = Submit(WriteJob({}), "--run-folder " + own + "/tiny");
  EXPECT_EQ(bed_->AwaitState(job, {"FAILED", "COMPLETED"}, kPatienceS), "FAILED");
  const std::string said = Weft("status " + own + "/tiny").out;
  EXPECT_THAT(said,
              HasSubstr("job " + job + " is FAILED: JobLaunchFailure: its first node could "));
  EXPECT_THAT(said, HasSubstr("job.output_dir has to be on a file system that all nodes mount"));
  bed_->Head("umount " + own);
}

TEST_F(SlurmRun, PrintsAndSubmitsNothingOfADryRun) {
  const HostBed::Answer answer = Weft("submit " + WriteJob({}) + " --dry-run");
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("#SBATCH --nodes=3\n"));
  EXPECT_FALSE(std::filesystem::exists(folder()));
  struct Case {
    std::string cluster, options, said;
  };
  for (const Case& each :
       {Case{"nodes: 3, slots: 2", "--run-folder /tmp/run", "/tmp/run is on this host alone"},
        Case{"nodes: 3, slots: 2, partition: fast", "", "cluster.partition: fast is no partition"},
        Case{"nodes: 3, slots: 2, sbatch_options: --colour", "", "that sbatch does not know"}}) {
    const HostBed::Answer refused =
        Weft("submit " + WriteJob({.cluster = each.cluster + ", scheduler: slurm"}) +
             " --dry-run " + each.options);
    EXPECT_EQ(refused.exit_code, 2) << each.said;
    EXPECT_THAT(refused.out, HasSubstr("#SBATCH --nodes=3\n")) << each.said;
    EXPECT_THAT(refused.err, HasSubstr("weft: a submission would be refused:\nweft: "));
    EXPECT_THAT(refused.err, HasSubstr(each.said));
  }
  const HostBed::Answer array =
      Weft("submit " + WriteJob({}) + " --dry-run --array training.seed=1,2 --run-folder /tmp/run");
  EXPECT_EQ(array.exit_code, 2);
  EXPECT_THAT(array.out, HasSubstr("  1) job=/tmp/run/run-1/submitted.yaml ;;\n"));
  EXPECT_EQ(bed_->Head("squeue -h"), "");
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

// tests/launcher/slurm writes them.
TEST_F(SlurmRun, HasEveryGoldenScriptTakenBySbatch) {
  int scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("/tests/golden"))) {
    const std::string name = entry.path().filename();
    if (name.rfind("sbatch_", 0) != 0) continue;
    ++scripts;
    const bool reserved = name == "sbatch_reservation.sh";
    if (reserved) {
      bed_->Head(
          "scontrol create reservation reservationname=class starttime=now duration=60 "
          "users=root nodes=h1");
    }
    const HostBed::Answer answer =
        bed_->hosts().Run(SlurmBed::kHead, "sbatch --test-only " + entry.path().string());
    EXPECT_EQ(answer.exit_code, 0) << name << ": " << answer.err;
    EXPECT_THAT(answer.err, HasSubstr("to start at")) << name;
    if (reserved) bed_->Head("scontrol delete reservationname=class");
  }
  EXPECT_EQ(scripts, 14);
}

// Slurm itself is the oracle: what it expands is expanded in the same way.
TEST_F(SlurmRun, ReadsNodeListsAsScontrolDoes) {
  std::mt19937 random(7);
  const auto number = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  std::string script, texts;
  std::vector<std::string> lists;
  for (int i = 0; i < 300; ++i) {
    std::string list;
    const int names = 1 + number(3);
    for (int name = 0; name < names; ++name) {
      if (name > 0) list += ",";
      list += std::string(1, static_cast<char>('a' + number(26)));
      const int brackets = 1 + number(2);
      for (int bracket = 0; bracket < brackets; ++bracket) {
        if (bracket > 0 && number(2) > 0) list += "-x";
        list += "[";
        const int ranges = 1 + number(3);
        for (int range = 0; range < ranges; ++range) {
          const int begin = number(120);
          const std::string zeros(static_cast<size_t>(number(3)), '0');
          list += (range > 0 ? "," : "") + zeros + std::to_string(begin);
          if (number(2) > 0) list += "-" + zeros + std::to_string(begin + number(12));
        }
        list += "]";
      }
    }
    lists.push_back(list);
    script += "scontrol show hostnames '" + list + "'; echo =; ";
  }
  std::istringstream answers(bed_->hosts().Run(SlurmBed::kHead, script).out);
  for (const std::string& list : lists) {
    std::vector<std::string> theirs;
    for (std::string line; std::getline(answers, line) && line != "=";) theirs.push_back(line);
    const auto ours = ExpandNodeList(list);
    ASSERT_TRUE(ours.ok()) << ours.status();
    EXPECT_EQ(ours.value_or(std::vector<std::string>()), theirs) << list;
  }
}

}  // namespace
}  // namespace weft
