#include "launcher/slurm/slurm_job.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr char kRunning[] =
    "JobId=7 JobName=tiny UserId=root(0) Priority=1 Nice=0 Account=(null) QOS=(null) "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 "
    "RunTime=00:00:05 TimeLimit=00:02:00 StartTime=2026-11-25T15:00:00 "
    "EndTime=2026-11-25T15:02:00 Deadline=N/A PreemptEligibleTime=2026-11-25T15:00:00 "
    "PreemptTime=None ReqNodeList=(null) ExcNodeList=(null) NodeList=h[1-3] BatchHost=h1\n";

TEST(SlurmJob, IsReadFromScontrol) {
  const SlurmJob job = ParseSlurmJob(kRunning);
  EXPECT_EQ(job.id, "7");
  EXPECT_EQ(job.state, "RUNNING");
  EXPECT_EQ(job.reason, "None");
  EXPECT_EQ(job.end_time, "2026-11-25T15:02:00");
  EXPECT_EQ(job.preempt_time, "None");
  EXPECT_EQ(job.node_list, "h[1-3]");
  EXPECT_EQ(job.restarts, 2);
  EXPECT_EQ(ParseSlurmJob("slurm_load_jobs error: Invalid job id specified").id, "");
}

TEST(SlurmJob, SaysWhatAReasonMeans) {
  EXPECT_EQ(ReasonMeaning("JobHeldUser"),
            "JobHeldUser: it is held; let it go by `scontrol release JOBID`");
  EXPECT_EQ(ReasonMeaning("SomethingNew"), "SomethingNew");
}

TEST(AfterRun, HasOneOwner) {
  const SlurmJob runs = ParseSlurmJob(kRunning);
  SlurmJob preempted = runs;
  preempted.preempt_time = "2026-11-25T15:01:00";
  SlurmJob cancelled = runs;
  cancelled.state = "COMPLETING";
  SlurmJob out_of_time = cancelled;
  out_of_time.reason = "TimeLimit";
  const EndedRun saved{.may_go_on = true, .progressed = true};
  const EndedRun idle{.may_go_on = true};
  const EndedRun by_hand{.may_go_on = true, .person_stopped = true, .progressed = true};
  struct Case {
    const char* name;
    EndedRun run;
    SlurmJob job;
    int idle_ends;
    AfterRun after;
  };
  const Case cases[] = {
      {"done or failed", {}, runs, 0, AfterRun::kLeave},
      {"a notice", saved, runs, 0, AfterRun::kRequeue},
      {"a person", by_hand, runs, 0, AfterRun::kLeave},
      {"scancel", saved, cancelled, 0, AfterRun::kLeave},
      {"time limit", saved, out_of_time, 0, AfterRun::kRequeue},
      {"no step", idle, runs, 0, AfterRun::kRequeue},
      {"no step again and again", idle, runs, kMostIdleEnds - 1, AfterRun::kHold},
      {"a step at last", saved, runs, kMostIdleEnds - 1, AfterRun::kRequeue},
      {"preempted for ever", idle, preempted, 100, AfterRun::kRequeue},
      {"poisoned, but stopped by hand", {true, true, false}, runs, 100, AfterRun::kLeave},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(AfterRunOf(each.run, each.job, each.idle_ends), each.after) << each.name;
  }
}

}  // namespace
}  // namespace weft
