// Ordinary days of a service: a host is shut down in good order, weftd is upgraded or is away.
// Nothing that was trained is trained again, but for what nobody could save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "absl/strings/str_replace.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSteps = 400;
constexpr int64_t kSavedAt = 150;
constexpr double kLeaseS = 4;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

class OrdinaryDays : public ServiceBed {
 protected:
  std::vector<std::string> WeftdWords() const override {
    std::vector<std::string> words = ServiceBed::WeftdWords();
    words.push_back("--lease-ms=" + std::to_string(static_cast<int>(1000 * kLeaseS)));
    return words;
  }

  // Saves at kSavedAt, whatever else happens.
  v1::SubmitRequest SavingJob(const std::string& name, int64_t steps = kSteps) {
    v1::SubmitRequest request = Job(name, 2, steps);
    std::string& text = *request.mutable_submission()->mutable_job();
    const int replaced = absl::StrReplaceAll({{"\"interval\":1000", "\"interval\":150"}}, &text);
    EXPECT_EQ(replaced, 1) << text;
    return request;
  }

  std::vector<StepMetrics> Steps(const std::string& name) const {
    return MetricsOf(folder() + "/" + name);
  }
  void ExpectEachStepOnce(const std::string& name) const {
    const std::vector<StepMetrics> steps = Steps(name);
    ASSERT_FALSE(steps.empty());
    for (size_t i = 1; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].step, steps[i - 1].step + 1) << "in generation " << steps[i].generation;
    }
  }
  // The reasons of its phases, a line each.
  std::string Reasons(const std::string& job) {
    std::string reasons;
    for (const v1::Event& event : Events(job)) {
      if (event.has_phase())
        reasons += event.phase().phase() + ": " + event.phase().reason() + "\n";
    }
    return reasons;
  }
  // As the kernel's last round at a poweroff: TERM to all that is left on the host.
  void TermAllButWeftd() {
    for (const char* program : {"weft-worker", "weft-shim", "mpirun", "orted", "weft"}) {
      for (const Found& found : Processes(program)) {
        const bool is_weftd = found.command.rfind("weftd", 0) == 0;
        if (!is_weftd) KillFound(found, SIGTERM);
      }
    }
  }
};

TEST_F(OrdinaryDays, AHostThatLeavesHasItsJobSavedWhichWaitsForAnother) {
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(2, kSteps);
  const std::string job = Submit(Job("leaves", 2, kSteps));
  WaitForStep(job, 20);
  EndHost(SIGTERM);
  v1::Job waits = WaitForPhase(job, "QUEUED");
  EXPECT_GE(waits.saved_step(), 20);
  EXPECT_EQ(waits.saved_step(), Steps("leaves").back().step);
  StartHost(2);
  WaitForStep(job, waits.saved_step() + 20);
  EndHost(SIGHUP);  // the service manager stops the unit, which leaves its agents alone
  TermAllButWeftd();
  waits = WaitForPhase(job, "QUEUED");
  EXPECT_EQ(waits.saved_step(), Steps("leaves").back().step);
  StartHost(2);
  WaitForStep(job, waits.saved_step() + 20);
  // A person's stop is one, until that person resumes it.
  EXPECT_EQ(Stop(job, v1::StopRequest::SAVE), absl::OkStatus());
  WaitForPhase(job, "SUSPENDED");
  EXPECT_EQ(Resume(job), absl::OkStatus());
  const v1::Job done =
      WaitFor(job, [](const v1::Job& seen) { return seen.phase() == "COMPLETED"; });
  EXPECT_EQ(done.generation(), 4);
  ExpectEachStepOnce("leaves");
  EXPECT_EQ(Curve("leaves"), undisturbed);
}

// For longer than a lease, after which ranks stop that hear nothing. A save that comes due waits,
// training does not.
TEST_F(OrdinaryDays, RanksTrainOnWithoutAWeftdThatWasToldToEnd) {
  constexpr int64_t kLong = 4 * kSavedAt;
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(2, kLong);
  const std::string job = Submit(SavingJob("away", kLong));
  WaitForStep(job, 20);
  StopWeftd();
  const double since_s = NowSeconds();
  const std::string saved = folder() + "/away/checkpoint";
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    return NowSeconds() - since_s > 2 * kLeaseS && Steps("away").back().step >= kSavedAt + 10;
  })) << Words();
  EXPECT_THAT(NamesIn(saved), Not(testing::Contains(testing::HasSubstr("step-"))));
  EXPECT_THAT(NamesIn(saved), Not(testing::Contains(testing::HasSubstr(".stage."))));
  StartWeftd();
  const v1::Job done =
      WaitFor(job, [](const v1::Job& seen) { return seen.phase() == "COMPLETED"; });
  EXPECT_EQ(done.generation(), 1) << Reasons(job);
  std::vector<int64_t> committed;
  for (const v1::Event& event : Events(job)) {
    if (event.has_committed()) committed.push_back(event.committed().step());
  }
  ASSERT_GE(committed.size(), 2u);
  EXPECT_GT(committed.front(), kSavedAt + 10) << "once weftd was back";
  ExpectEachStepOnce("away");
  EXPECT_EQ(Curve("away"), undisturbed);
}

TEST_F(OrdinaryDays, ARankThatIsLostMeanwhileWaitsForTheNextWeftdAndALeaseThatIsNotKeptIsNamed) {
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(2, kSteps);
  const std::string job = Submit(SavingJob("lost"));
  WaitForStep(job, kSavedAt + 10);
  StopWeftd();
  const std::vector<Found> ranks = Processes("weft-worker");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_TRUE(KillFound(ranks[1], SIGKILL));
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return Processes("weft-worker").empty(); }));
  StartWeftd();
  WaitFor(job,
          [](const v1::Job& seen) { return seen.generation() == 2 && seen.phase() == "RUNNING"; });
  // An unplanned absence costs what the next generation does again.
  EndWeftd(SIGKILL);
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return Processes("weft-worker").empty(); }));
  StartWeftd();
  const v1::Job done =
      WaitFor(job, [](const v1::Job& seen) { return seen.phase() == "COMPLETED"; });
  EXPECT_EQ(done.generation(), 3);
  const std::string reasons = Reasons(job);
  EXPECT_THAT(reasons, HasSubstr("killed by signal 9"));
  EXPECT_THAT(reasons, HasSubstr("the host's lease had run out"));
  EXPECT_THAT(reasons, Not(HasSubstr("exited with")));
  EXPECT_THAT(reasons, HasSubstr("resuming after step " + std::to_string(kSavedAt)));
  EXPECT_EQ(Curve("lost"), undisturbed);
}

// As docs/service.md has it: taken while weftd is ended, and jobs go on meanwhile.
TEST_F(OrdinaryDays, ABackupOfTheStateIsGoneOnWith) {
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(2, kSteps);
  const std::string job = Submit(SavingJob("first"));
  const std::string waits = Submit(Job("waits", 2, 30));
  WaitForStep(job, 20);
  StopWeftd();
  const std::string state = folder() + "/state", backup = folder() + "/backup";
  ASSERT_EQ(std::system(("cp -a " + state + " " + backup).c_str()), 0);
  StartWeftd();
  WaitForStep(job, kSavedAt + 20);
  const std::string later = Submit(Job("later", 2, 30));
  StopWeftd();
  std::filesystem::rename(state, folder() + "/lost");
  std::filesystem::rename(backup, state);
  EXPECT_THAT(Run({WeftdPath(), "--check", "--state=" + state}), HasSubstr(" jobs, 1 hosts"));
  StartWeftd();
  for (const std::string& each : {job, waits}) {
    WaitFor(each, [](const v1::Job& seen) { return seen.phase() == "COMPLETED"; });
  }
  grpc::ClientContext context;
  v1::GetRequest request;
  request.set_job_id(later);
  v1::Job none;
  EXPECT_EQ(control().Get(&context, request, &none).error_code(), grpc::StatusCode::NOT_FOUND)
      << "it was submitted since";
  EXPECT_EQ(Curve("first"), undisturbed);
  ExpectEachStepOnce("first");
}

}  // namespace
}  // namespace weft
