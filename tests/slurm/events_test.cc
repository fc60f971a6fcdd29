// A week of a Slurm cluster: one event after the other happens to one run. A notice costs
// no step, and neither does a cancelled job whose save fits KillWait; what comes without a notice
// costs those since the last commit. The losses are those of a run that nothing was done to. The
// gate has four events; WEFT_SLURM_EVENTS=n draws any n, the rest of them wait more than a minute
// each; WEFT_SLURM_SEED=random draws others. A line is printed for each event.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "process/failpoint.h"
#include "tests/places.h"
#include "tests/slurm/slurm_run.h"

namespace weft {
namespace {

// A step of the run while nothing is done to it: steps enough for each event, few to train again.
constexpr int kUsualStepMs = 150;
constexpr int64_t kStepsBetweenEvents = 12;  // a checkpoint lies in between
constexpr double kCutS = 60;
// Slurm gives a node up after SlurmdTimeout, which is 15 s here, looks every third of that, and
// has a job requeued that it cannot reach: two minutes are many times as long.
constexpr double kGivenUpWithinS = 180;
// A run that is queued again waits for its nodes' epilogs, starts, and does a step of 5 s at most.
constexpr double kGoesOnWithinS = 300;

enum class Happens { kNodeDies, kLinkIsCut, kTimeIsOver, kIsCancelled, kIsRequeued, kIsPreempted };

struct SlurmEvent {
  const char* name;
  Happens what;
  bool costs_nothing;
  bool in_gate;  // the notice of a time limit, which takes a minute, is SlurmRun's there
};

constexpr SlurmEvent kSlurmEvents[] = {
    {"a node dies for longer than SlurmdTimeout", Happens::kNodeDies, false, true},
    {"a link is cut for 60 s", Happens::kLinkIsCut, false, false},
    {"the time limit comes near", Happens::kTimeIsOver, true, false},
    {"scancel", Happens::kIsCancelled, true, true},
    {"scontrol requeue", Happens::kIsRequeued, false, true},
    {"preemption", Happens::kIsPreempted, true, true},
};

std::vector<SlurmEvent> ChooseSlurmEvents(std::minstd_rand& random) {
  std::vector<SlurmEvent> events;
  const int drawn = NumberFromEnvironment("WEFT_SLURM_EVENTS", 0);
  if (drawn == 0) {
    std::copy_if(std::begin(kSlurmEvents), std::end(kSlurmEvents), std::back_inserter(events),
                 [](const SlurmEvent& event) { return event.in_gate; });
    std::shuffle(events.begin(), events.end(), random);
  }
  // Each kind comes once before any comes again.
  while (static_cast<int>(events.size()) < drawn) {
    std::vector<SlurmEvent> round(std::begin(kSlurmEvents), std::end(kSlurmEvents));
    std::shuffle(round.begin(), round.end(), random);
    for (const SlurmEvent& each : round) {
      if (static_cast<int>(events.size()) < drawn) events.push_back(each);
    }
  }
  return events;
}

class SlurmEvents : public SlurmRun {
 protected:
  std::string MoreOfSlurm() const override { return "SlurmdTimeout=15\n"; }
  // Two of three nodes: the job goes on when one has gone.
  static SlurmJobWords Job(const std::string& more_of_cluster = "") {
    return {.parallelism = "dp: 2, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b",
            .cluster = "slots: 2, nodes: 2, scheduler: slurm" + more_of_cluster,
            .more =
                "fault_tolerance: {heartbeat_timeout_seconds: 4, steady_seconds: 1, "
                "max_restarts: 1000, preflight: false}\n",
            .steps = 1000000};
  }

  // Submits the run (again), each of whose steps takes `step_ms` from now on.
  void SubmitPaced(int step_ms, const std::string& more_of_cluster = "") {
    const HostBed::Answer answer = bed_->hosts().Run(
        SlurmBed::kHead, std::string(kPauseVariable) + "=step.begin:" + std::to_string(step_ms) +
                             " " + BinaryPath("/bin/weft") + " submit " +
                             WriteJob(Job(more_of_cluster)));
    ASSERT_EQ(answer.exit_code, 0) << answer.out << answer.err;
    const size_t at = answer.out.find("slurm job ");
    ASSERT_NE(at, std::string::npos) << answer.out;
    job_ = std::to_string(std::atoi(answer.out.c_str() + at + 10));
  }
  void StopAndSubmit(int step_ms, const std::string& more_of_cluster = "") {
    EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
    EXPECT_EQ(bed_->AwaitState(job_, {"COMPLETED"}, kPatienceS), "COMPLETED");
    SubmitPaced(step_ms, more_of_cluster);
  }

  std::string Restarts() { return bed_->JobField(job_, "Restarts"); }
  void AwaitRestart(const std::string& before, double within_s) {
    EXPECT_TRUE(Eventually(within_s,
                           [&] {
                             SleepSeconds(0.2);
                             return Restarts() != before;
                           }))
        << bed_->Head("scontrol show job " + job_) << Words();
  }
  // One of the job's, its batch host among them.
  int NodeOfJob(std::minstd_rand& random) {
    const std::string nodes =
        bed_->Head("scontrol show hostnames " + bed_->JobField(job_, "NodeList"));
    const size_t at = random() % 2 == 0 ? nodes.find('h') : nodes.rfind('h');
    return std::atoi(nodes.c_str() + at + 1);
  }
  // The node answers Slurm again.
  void AwaitNode(int node) {
    EXPECT_TRUE(Eventually(kPatienceS, [&] {
      SleepSeconds(0.2);
      const std::string state =
          bed_->Head("sinfo -h -N -n " + HostBed::Name(node) + " -p low -o %T");
      return state == "idle" || state == "mixed" || state == "allocated";
    })) << bed_->Head("sinfo -N -l");
  }

  // How long steps took then, for the line that is printed.
  int Inject(const SlurmEvent& event, std::minstd_rand& random);
  void LetDie(int node);
  void CutLinkOf(int node);
  void LetTimeBeOver(int step_ms);
  void Preempt();

  // Waits for a step of a later generation. A run that waits in the queue is let go at once: Slurm
  // would let it wait for two minutes.
  void AwaitGoesOn(int64_t generation) {
    EXPECT_TRUE(Eventually(kGoesOnWithinS,
                           [&] {
                             if (LastGeneration() > generation) return true;
                             if (bed_->JobField(job_, "JobState") == "PENDING") {
                               bed_->hosts().Run(SlurmBed::kHead, "scontrol update jobid=" + job_ +
                                                                      " starttime=now+2");
                               return Eventually(4, [&] { return LastGeneration() > generation; });
                             }
                             SleepSeconds(0.1);
                             return false;
                           }))
        << bed_->Head("scontrol show job " + job_) << Words();
  }

  std::string job_;
};

// No connection of the node's is closed: nobody is there to do so.
void SlurmEvents::LetDie(int node) {
  const std::string before = Restarts();
  bed_->hosts().CutLink(node);
  bed_->KillNode(node);
  AwaitRestart(before, kGivenUpWithinS);
  bed_->hosts().RestoreLink(node);
  bed_->StartNode(node);
  AwaitNode(node);
}

void SlurmEvents::CutLinkOf(int node) {
  bed_->hosts().CutLink(node);
  SleepSeconds(kCutS);
  bed_->hosts().RestoreLink(node);
  AwaitNode(node);
}

// Slurm's notice comes up to a minute early.
void SlurmEvents::LetTimeBeOver(int step_ms) {
  const int64_t generation = LastGeneration();
  StopAndSubmit(step_ms, ", time: 2");
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return LastGeneration() > generation; })) << Words();
  AwaitRestart("0", kGivenUpWithinS);
  EXPECT_NE(ReadText(folder() + "/logs/slurm-" + job_ + ".log").find(", saved"), std::string::npos)
      << Words();
  AwaitGoesOn(LastGeneration());
}

void SlurmEvents::Preempt() {
  const std::string before = Restarts();
  const std::string high =
      bed_->Head("cd " + bed_->shared() +
                 " && sbatch --parsable -p high -N3 -c4 -o /dev/null --wrap 'exec sleep 300'");
  AwaitRestart(before, kGivenUpWithinS);
  EXPECT_EQ(bed_->AwaitState(high, {"RUNNING"}, kPatienceS), "RUNNING");
  bed_->Head("scancel " + high);
}

int SlurmEvents::Inject(const SlurmEvent& event, std::minstd_rand& random) {
  switch (event.what) {
    case Happens::kNodeDies:
      LetDie(NodeOfJob(random));
      return kUsualStepMs;
    case Happens::kLinkIsCut:
      CutLinkOf(NodeOfJob(random));
      return kUsualStepMs;
    case Happens::kTimeIsOver: {
      const int step_ms = 200 + static_cast<int>(random() % 4800);
      LetTimeBeOver(step_ms);
      return step_ms;
    }
    case Happens::kIsCancelled:
      bed_->Head("scancel " + job_);
      EXPECT_EQ(bed_->AwaitState(job_, {"CANCELLED"}, kPatienceS), "CANCELLED");
      SubmitPaced(kUsualStepMs);
      return kUsualStepMs;
    case Happens::kIsRequeued:
      bed_->Head("scontrol requeue " + job_);
      return kUsualStepMs;
    case Happens::kIsPreempted:
      Preempt();
      return kUsualStepMs;
  }
  return 0;
}

TEST_F(SlurmEvents, CostAtMostTheStepsSinceTheLastCommit) {
  std::minstd_rand random(SeedFromEnvironment("WEFT_SLURM_SEED", 1));
  SubmitPaced(kUsualStepMs);
  int number = 0;
  for (const SlurmEvent& event : ChooseSlurmEvents(random)) {
    ASSERT_TRUE(WaitForStep(LastStep() + kStepsBetweenEvents)) << Words();
    const int64_t generation = LastGeneration();
    const size_t known = Steps().size();
    const double from_s = NowSeconds();
    const int step_ms = Inject(event, random);
    AwaitGoesOn(generation);
    if (HasFatalFailure()) return;
    const StepsLost lost = StepsLostFrom(folder(), known);
    std::printf("%2d: %s, with steps of %.2f s: %lld steps lost at step %lld, on again in %.0f s\n",
                ++number, event.name, step_ms / 1e3, static_cast<long long>(lost.steps),
                static_cast<long long>(lost.at_step), NowSeconds() - from_s);
    std::fflush(stdout);
    EXPECT_EQ(lost.beyond_commits, 0) << event.name << "\n" << Words();
    if (event.costs_nothing) {
      EXPECT_EQ(lost.steps, 0) << event.name << "\n" << Words();
    }
    if (step_ms != kUsualStepMs) StopAndSubmit(kUsualStepMs);
  }
  ASSERT_TRUE(WaitForStep(LastStep() + kStepsBetweenEvents)) << Words();
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job_, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
  const std::map<int64_t, std::string> curve = Curve();
  SlurmJobWords alone = Job();
  alone.steps = LastStep();
  EXPECT_EQ(curve, LocalCurve(alone));
}

}  // namespace
}  // namespace weft
