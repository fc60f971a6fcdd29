// The verbs that speak to a weftd that serves jobs, run as a person would, against one that the
// test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/service/harmless.h"
#include "plan/keys/layout_reader.h"
#include "proto/job_text.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/launcher/service/fake_control.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

class ServiceCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<FakeControl>(folder_.path() + "/s");
    setenv("WEFT_COORDINATOR", ("unix:" + folder_.path() + "/s").c_str(), 1);
    AddJob("job-2", "RUNNING");
    AddJob("job-1", "COMPLETED");
    v1::Host& host = state_.hosts.emplace_back();
    host.set_host("n1");
    host.set_slots(8);
    host.set_slots_used(2);
    host.set_present(true);
    state_.revision = 9;
    server_->Set(state_);
  }
  void TearDown() override { unsetenv("WEFT_COORDINATOR"); }

  void AddJob(const std::string& id, const std::string& phase) {
    v1::Job& job = state_.jobs.emplace_back();
    job.set_job_id(id);
    job.set_name("small");
    job.set_owner("ada");
    job.set_phase(phase);
    job.set_step(120);
    job.set_steps(300);
    job.set_saved_step(100);
    job.set_nodes(1);
    job.set_revision(3);
    job.set_run_folder("/runs/small");
    job.set_submitted_unix_ms(1000);
  }
  void AddPhase(int64_t revision, const std::string& phase, const std::string& reason = "") {
    v1::Event& event = state_.events.emplace_back();
    event.set_job_id("job-2");
    event.set_revision(revision);
    event.mutable_phase()->set_phase(phase);
    event.mutable_phase()->set_reason(reason);
  }
  Ran Weft(const std::string& arguments) { return RunWeft(folder_, arguments); }

  JobFolder folder_;
  FakeControlState state_;
  std::unique_ptr<FakeControl> server_;
};

TEST_F(ServiceCommandsTest, PsListsWhatWaitsOrRunsAndAllOnRequest) {
  const Ran ran = Weft("ps");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("JOB    NAME   OWNER  PHASE    STEP     HOSTS  AGE\n"
                                  "job-2  small  ada    RUNNING  120/300  0/1    "));
  EXPECT_THAT(ran.out, Not(HasSubstr("job-1")));
  EXPECT_THAT(Weft("ps --all").out, HasSubstr("job-1"));
  EXPECT_THAT(Weft("ps --all --most 1").out, Not(HasSubstr("job-1")));
  EXPECT_THAT(Weft("ps --phase COMPLETED --owner ada").out, HasSubstr("job-1"));
  EXPECT_THAT(server_->asked().back(), HasSubstr("phases: \"COMPLETED\" owner: \"ada\""));
  const Json json = Json::parse(Weft("ps --all --json").out);
  ASSERT_THAT(json, SizeIs(2));
  EXPECT_EQ(json[1]["job_id"], "job-1");
  EXPECT_EQ(json[1]["steps"], 300);
  server_->Set({});
  EXPECT_THAT(Weft("ps").out, HasSubstr("no jobs wait or run"));
  EXPECT_EQ(Weft("ps --json").out, "[]\n");
}

TEST_F(ServiceCommandsTest, PsReadsAllPages) {
  state_.jobs.clear();
  for (int i = 2500; i > 0; --i) AddJob(absl::StrCat("job-", i), "COMPLETED");
  state_.jobs.back().set_phase("QUEUED");
  server_->Set(state_);
  EXPECT_THAT(Weft("ps").out, HasSubstr("job-1 "));
}

// Where no weftd is named and there is a squeue, which answers here with what it was asked.
TEST_F(ServiceCommandsTest, PsAsksSlurmForWhatItIsTold) {
  unsetenv("WEFT_COORDINATOR");
  const std::string squeue = folder_.path() + "/squeue";
  std::ofstream(squeue) << "#!/bin/sh\necho \"$*\" >> " << folder_.path() << "/asked\n"
                        << "for job in 9 8 7; do echo \"$job|RUNNING|None|N/A|2|low|weft:/r$job\"; "
                        << "done\n";
  std::filesystem::permissions(squeue, std::filesystem::perms::owner_all);
  const auto ps = [&](const std::string& words) {
    std::filesystem::remove(folder_.path() + "/asked");
    return RunWeft(folder_, "ps" + words, {.path = folder_.path() + ":/usr/bin:/bin"});
  };
  const auto asked = [&] {
    std::ifstream file(folder_.path() + "/asked");
    std::string line;
    std::getline(file, line);
    return line;
  };
  EXPECT_THAT(ps("").out, HasSubstr("/r7"));
  EXPECT_THAT(asked(), AllOf(StartsWith("--me "), Not(HasSubstr("--states"))));
  EXPECT_EQ(ps(" --all --owner ada").exit_code, 0);
  EXPECT_THAT(asked(), AllOf(StartsWith("--user=ada "), EndsWith(" --states=all")));
  const Ran two = ps(" --most 2");
  EXPECT_THAT(two.out, AllOf(HasSubstr("/r9"), HasSubstr("/r8"), Not(HasSubstr("/r7"))));
  const Ran phase = ps(" --phase RUNNING");
  EXPECT_EQ(phase.exit_code, 2);
  EXPECT_THAT(phase.err, StartsWith("weft: --phase: names a phase of weft's"));
  EXPECT_EQ(asked(), "");
}

TEST_F(ServiceCommandsTest, StatusTellsAJobFromARun) {
  EXPECT_THAT(Weft("status job-2").out, HasSubstr("  step        120 of 300, saved 100\n"));
  EXPECT_EQ(Json::parse(Weft("status job-2 --json").out)["phase"], "RUNNING");
  const Ran unknown = Weft("status job-7");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.err, "weft: job job-7 is not known\n");
  server_->Forget();
  EXPECT_EQ(Weft("status ./job-2").exit_code, 2) << "that is a folder";
  EXPECT_EQ(Weft("status runs/a --json").exit_code, 2);
  EXPECT_THAT(server_->asked(), IsEmpty());
}

TEST_F(ServiceCommandsTest, VerbsAskForWhatTheySay) {
  const struct {
    std::string words, call, asked;
  } cases[] = {
      {"stop job-2", "Stop", "job_id: \"job-2\"}"},
      {"stop job-2 --now", "Stop", "job_id: \"job-2\" level: NOW}"},
      {"stop job-2 --deadline 90", "Stop", "job_id: \"job-2\" deadline_s: 90}"},
      {"checkpoint job-2", "Checkpoint", "job_id: \"job-2\"}"},
      {"pause job-2", "Pause", "job_id: \"job-2\"}"},
      {"resume job-2", "Resume", "job_id: \"job-2\"}"},
      {"resize job-2 2:4", "Resize", "job_id: \"job-2\" least_nodes: 2 nodes: 4}"},
      {"resize job-2 3", "Resize", "job_id: \"job-2\" least_nodes: 3 nodes: 3}"},
      {"drain n1 --reason disk", "DrainHost", "host: \"n1\" reason: \"disk\"}"},
      {"drain n1 --move", "DrainHost", "host: \"n1\" move: true}"},
      {"undrain n1", "UndrainHost", "host: \"n1\"}"},
  };
  for (const auto& [words, call, asked] : cases) {
    const Ran ran = Weft(words);
    EXPECT_EQ(ran.exit_code, 0) << words << ran.err;
    EXPECT_THAT(server_->asked().back(), StartsWith(call + " {request_id: \"")) << words;
    EXPECT_THAT(server_->asked().back(), EndsWith("\" " + asked)) << words;
    EXPECT_THAT(ran.out, EndsWith("\n")) << words;
    EXPECT_TRUE(Json::accept(Weft(words + " --json").out)) << words;
  }
  EXPECT_EQ(Weft("pause job-2").out, "job-2: RUNNING, step 120 of 300, saved 100\n");
  EXPECT_EQ(Weft("drain n1").out, "n1: ready, 2 of 8 slots used\n");
}

TEST_F(ServiceCommandsTest, WrongWordsAreUsageErrorsAndAskNothing) {
  for (const char* words :
       {"checkpoint runs/a", "pause", "resize job-2 4:2", "resize job-2 0:2", "resize job-2 a:b",
        "resize job-2 1:2:3", "logs job-2 --since yesterday", "logs job-2 --tail 0",
        "logs job-2 --rank -1", "watch small", "events", "stop job-2 --now --deadline 3",
        "stop runs/a --deadline 3", "ps --most 0", "submit job.yaml --priority 1001", "drain",
        "ps --coordinator nonsense", "ps --coordinator host:7800"}) {
    const Ran ran = Weft(words);
    EXPECT_EQ(ran.exit_code, 2) << words << ran.out;
    EXPECT_THAT(ran.err, StartsWith("weft: ")) << words;
  }
  EXPECT_THAT(server_->asked(), IsEmpty());
}

TEST_F(ServiceCommandsTest, FailuresSayWhyAndNameACure) {
  const struct {
    absl::Status refusal;
    int exit_code;
  } cases[] = {
      {absl::PermissionDeniedError("job-2 is ada's; only she or an operator may"), 1},
      {absl::FailedPreconditionError("job-2 is COMPLETED: it cannot be paused"), 1},
      {absl::AbortedError("job-2 has changed"), 1},
      {absl::InvalidArgumentError("job_id: \x1b[2J"), 2},
  };
  for (const auto& each : cases) {
    state_.refusals = 1;
    state_.refusal = each.refusal;
    server_->Set(state_);
    const Ran ran = Weft("pause job-2");
    EXPECT_EQ(ran.exit_code, each.exit_code) << ran.err;
    EXPECT_EQ(ran.err, absl::StrCat("weft: ", Harmless(each.refusal.message()), "\n"));
  }
  const Ran gone = Weft("ps --coordinator " + folder_.path() + "/none");
  EXPECT_EQ(gone.exit_code, 75);
  EXPECT_THAT(gone.err, HasSubstr("is it running, and is this its address?"));
  unsetenv("WEFT_COORDINATOR");
  if (std::filesystem::exists("/run/weft/weftd.sock")) return;
  const Ran unnamed = Weft("ps");
  EXPECT_EQ(unnamed.exit_code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("give --coordinator ADDRESS, or set WEFT_COORDINATOR"));
}

TEST_F(ServiceCommandsTest, WatchFollowsAJobAndEndsAsItEnds) {
  AddPhase(3, "RUNNING");  // before it is watched
  AddPhase(4, "DRAINING", "asked to\nby ada");
  AddPhase(5, "FAILED", "rank 3 died");
  server_->Set(state_);
  const Ran ran = Weft("watch job-2");
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_EQ(ran.out,
            "job-2: RUNNING, step 120 of 300, saved 100\n"
            "1970-01-01T00:00:00Z  DRAINING: asked to\n  | by ada\n"
            "1970-01-01T00:00:00Z  FAILED: rank 3 died\n");
  const Ran json = Weft("watch job-2 --json");
  std::vector<std::string> lines = absl::StrSplit(json.out, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(Json::parse(lines[1])["phase"]["reason"], "rank 3 died");
  server_->Forget();
  const Ran over = Weft("watch job-1");
  EXPECT_EQ(over.exit_code, 0);
  EXPECT_THAT(server_->asked(), SizeIs(1)) << "nothing more can happen to it";
}

TEST_F(ServiceCommandsTest, WatchGoesOnWithTheNewestWhereEventsAreLost) {
  state_.oldest_revision = 9;
  AddPhase(10, "COMPLETED");
  server_->Set(state_);
  const Ran ran = Weft("watch job-2");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.err, "weft: some events are no longer kept; goes on with the newest\n");
  EXPECT_THAT(ran.out, HasSubstr("COMPLETED"));
}

TEST_F(ServiceCommandsTest, EventsTellWhatIsKeptAndEnd) {
  AddPhase(2, "SUBMITTED");
  AddPhase(3, "RUNNING");
  state_.events.emplace_back().set_job_id("job-2");
  state_.events.back().set_revision(3);
  state_.events.back().mutable_step()->set_step(7);
  state_.lasts = true;
  server_->Set(state_);
  const Ran ran = Weft("events job-2");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "1970-01-01T00:00:00Z  SUBMITTED\n1970-01-01T00:00:00Z  RUNNING\n");
  state_.oldest_revision = 3;
  server_->Set(state_);
  const Ran cut = Weft("events job-2");
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(cut.out, "1970-01-01T00:00:00Z  RUNNING\n");
  EXPECT_THAT(cut.err, HasSubstr("no longer kept"));
}

TEST_F(ServiceCommandsTest, LogsAreHarmlessAndSayWhoseTheyAre) {
  for (const int rank : {0, 3}) {
    v1::LogsReply& piece = state_.pieces.emplace_back();
    piece.set_rank(rank);
    piece.set_text("\x1b[2Jstep\nnext\xff\n");
  }
  server_->Set(state_);
  const Ran ran = Weft("logs job-2 -f --rank 0 --rank 3 --tail 10 --since 2026-11-24T20:00:00Z");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "[0] \\x1b[2Jstep\n[0] next\\xff\n"
            "[3] \\x1b[2Jstep\n[3] next\\xff\n");
  EXPECT_THAT(server_->asked().back(),
              HasSubstr("ranks: 0 ranks: 3 tail_lines: 10 since_unix_ms: 1795550400000 "
                        "follow: true"));
  EXPECT_THAT(Weft("logs job-2 --rank 3").out, StartsWith("\\x1b[2Jstep\n"));
}

TEST_F(ServiceCommandsTest, AnInterruptOnlyLeaves) {
  state_.lasts = true;
  server_->Set(state_);
  for (const char* words : {"watch job-2", "watch"}) {
    server_->Forget();
    const auto watches = [&] {
      const std::vector<std::string> asked = server_->asked();
      return !asked.empty() && asked.back().rfind("Watch", 0) == 0;
    };
    // Presses Ctrl-C once weft watches, or never: RunWeft's own time bounds the wait.
    std::jthread person([&](const std::stop_token& over) {
      while (!watches() && !over.stop_requested()) usleep(10000);
      pid_t weft = 0;
      if (watches() && std::ifstream(folder_.path() + "/pid") >> weft) kill(weft, SIGINT);
    });
    const Ran ran = RunWeft(
        folder_, absl::StrCat("-c 'echo $$ >pid; exec ", BinaryPath("/bin/weft "), words, "'"),
        {.program = "bash"});
    EXPECT_TRUE(watches());
    EXPECT_EQ(ran.exit_code, 0) << words << ran.err;
    EXPECT_EQ(ran.err, "") << words;
    for (const std::string& asked : server_->asked()) EXPECT_THAT(asked, Not(StartsWith("Stop")));
  }
}

TEST_F(ServiceCommandsTest, HostsAreATableOrJson) {
  EXPECT_EQ(Weft("hosts").out,
            "HOST  STATE  SLOTS\n"
            "n1    ready  2/8\n");
  EXPECT_EQ(Json::parse(Weft("hosts --json").out)[0]["slots_used"], 2);
  server_->Set({});
  EXPECT_THAT(Weft("hosts").out, HasSubstr("weft agent --standing offers one"));
}

TEST_F(ServiceCommandsTest, SubmitHandsOverAJobThatIsRead) {
  folder_.Write("job.yaml", kGoodJob);
  const Ran ran = Weft("submit job.yaml --set training.steps=30 --priority -3 --name mine --json");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "{\"job_id\":\"job-17\",\"revision\":9}\n");
  const v1::SubmitRequest request = server_->submitted();
  EXPECT_THAT(request.request_id(), SizeIs(32));
  EXPECT_EQ(request.name(), "mine");
  EXPECT_EQ(request.priority(), -3);
  EXPECT_FALSE(request.brings_hosts());
  EXPECT_EQ(request.file(), folder_.path() + "/job.yaml");
  EXPECT_THAT(request.overrides(), ElementsAre("training.steps=30"));
  const v1::Submission& submission = request.submission();
  const auto job = ParseJobText(submission.job());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training.steps, 30);
  EXPECT_THAT(submission.run_folder(), StartsWith(folder_.path()));
  EXPECT_THAT(submission.data(), SizeIs(1));
  EXPECT_THAT(submission.run().id(), SizeIs(16));
  EXPECT_FALSE(submission.run().mathematics().empty());
  EXPECT_FALSE(submission.has_load());
  EXPECT_FALSE(submission.planned_for().empty());
  // The properties give the layout back.
  std::vector<std::string> properties;
  for (const auto& [name, value] : submission.layout()) {
    properties.push_back(absl::StrCat(name, "=", value));
  }
  const auto spec = ParseLayoutSpec("layout", absl::StrJoin(properties, " "));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto layout = LayoutFrom(*spec, *job);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->dp, 2);
  EXPECT_EQ(layout->pp, 2);
}

TEST_F(ServiceCommandsTest, SubmitLeavesWhatTheNextOneIsComparedWith) {
  folder_.Write("job.yaml", kGoodJob);
  const Ran first = Weft("submit job.yaml --run-folder out/here");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("run: " + folder_.path() + "/out/here\n"));
  EXPECT_THAT(first.out, HasSubstr("watch job-17\n"));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/out/here/resolved.yaml"));
  EXPECT_EQ(server_->submitted().submission().run_folder(), folder_.path() + "/out/here");
  server_->Forget();
  const Ran other = Weft("submit job.yaml --run-folder out/here --set optimizer.lr=0.5");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("optimizer.lr"));
  EXPECT_THAT(server_->asked(), IsEmpty());
}

TEST_F(ServiceCommandsTest, SubmitQueuesNothingThatCannotRun) {
  folder_.Write("job.yaml", JobWith("n_layer: 4", "n_layer: four"));
  EXPECT_EQ(Weft("submit job.yaml").exit_code, 2);
  folder_.Write("job.yaml", kGoodJob);
  EXPECT_EQ(Weft("submit job.yaml --set model.n_embd=65536").exit_code, 3);
  EXPECT_EQ(Weft("submit none.yaml").exit_code, 2);
  EXPECT_THAT(server_->asked(), IsEmpty());
}

TEST_F(ServiceCommandsTest, SubmitMovesNoRunAsideThatAJobWritesInto) {
  folder_.Write("job.yaml", kGoodJob);
  state_.jobs[0].set_run_folder(folder_.path() + "/out/here");
  server_->Set(state_);
  std::filesystem::create_directories(folder_.path() + "/out/here");
  const Ran ran = Weft("submit job.yaml --run-folder out/here --fresh");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("job-2 is RUNNING in " + folder_.path() +
                                 "/out/here; end it first: weft stop job-2"));
}

TEST_F(ServiceCommandsTest, CompletionKnowsTheVerbs) {
  for (const char* shell : {"bash", "zsh"}) {
    const std::string text = Weft(absl::StrCat("completion ", shell)).out;
    for (const char* verb : {"submit", "ps", "watch", "logs", "events", "checkpoint", "pause",
                             "resume", "resize", "hosts", "drain", "undrain"}) {
      EXPECT_THAT(text, HasSubstr(absl::StrCat("    ", verb, ") options='"))) << shell;
    }
  }
}

}  // namespace
}  // namespace weft
