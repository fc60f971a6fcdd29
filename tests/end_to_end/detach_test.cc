// A run without a terminal: left with --detach, looked at, followed, stopped from elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/end_to_end/lacking.h"
#include "tests/end_to_end/tiny_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TinyRun::Outcome Say(TinyRun& run, const std::vector<std::string>& arguments) {
  const std::unique_ptr<Child> weft = run.Weft(arguments);
  return TinyRun::Finish(*weft, 240);
}

TEST(Detached, RunGoesOnIsSeenAndStopsOnRequest) {
  TinyRun run;
  const TinyRun::Outcome detached = run.RunToEnd({"--detach", "--set", TinyRun::kEndless}, 120);
  ASSERT_EQ(detached.exit_code, 0) << detached.err;
  EXPECT_THAT(detached.out, HasSubstr("weft attach " + run.run_folder()));
  run.WaitForStep(12);
  const TinyRun::Outcome status = Say(run, {"status", run.run_folder()});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("RUNNING"));
  const TinyRun::Outcome stopped = Say(run, {"stop", run.run_folder()});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  const int64_t last = run.LastStep();
  EXPECT_EQ(run.Checkpoints().count("step-" + std::to_string(last)), 1u) << last;
  run.ExpectNothingLeft();
  EXPECT_THAT(Say(run, {"status", run.run_folder()}).out, HasSubstr("not running"));
}

// Says whether the watcher has told that it is there.
bool IsAttached(const Child& watcher) {
  return absl::StrContains(watcher.Stdout() + watcher.Stderr(), "attached to ");
}

// Its ranks stand still until who follows it is there: it would be over before a busy machine has
// started that.
TEST(Detached, RunIsFollowedToItsEndAndCanBeLeftAgain) {
  constexpr int kLastStep = 300;
  TinyRun run;
  const std::string steps = "training.steps=" + std::to_string(kLastStep);
  ASSERT_EQ(run.RunToEnd({"--detach", "--set", steps}, kPatienceS).exit_code, 0);
  run.WaitForStep(5);
  const std::vector<Found> ranks = run.Processes("weft-worker");
  ASSERT_FALSE(ranks.empty()) << "it has ended";
  for (const Found& rank : ranks) KillFound(rank, SIGSTOP);
  {
    const std::unique_ptr<Child> watcher = run.Weft({"attach", run.job_path()});
    EXPECT_TRUE(Eventually(kPatienceS, [&] { return IsAttached(*watcher); }));
    watcher->Signal(SIGINT);  // leaves; the run goes on
    TinyRun::Finish(*watcher, kPatienceS);
  }
  const std::unique_ptr<Child> follower = run.Weft({"attach", run.run_folder()});
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return IsAttached(*follower); }));
  for (const Found& rank : ranks) KillFound(rank, SIGCONT);
  const TinyRun::Outcome followed = TinyRun::Finish(*follower, 240);
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_EQ(run.LastStep(), kLastStep);
  std::map<int64_t, std::string> curve = run.Curve();
  std::erase_if(curve, [](const auto& each) { return each.first > TinyRun::kSteps; });
  EXPECT_EQ(curve, UndisturbedCurve());
  run.ExpectNothingLeft();
}

// A run's own weftd speaks as one that serves jobs.
TEST(Detached, RunTakesTheVerbsOfAJob) {
  TinyRun run;
  const TinyRun::Outcome detached = run.RunToEnd(
      {"--detach", "--set", TinyRun::kEndless, "--set", "checkpoint.interval=1000000"}, 20);
  ASSERT_EQ(detached.exit_code, 0) << detached.err;
  run.WaitForStep(12);
  const std::unique_ptr<Child> watch = run.Weft({"watch", run.run_folder()});
  const std::unique_ptr<Child> follow = run.Weft({"logs", "-f", run.job_path()});
  const TinyRun::Outcome saved = Say(run, {"checkpoint", run.run_folder()});
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("job-1: RUNNING, step "));
  EXPECT_TRUE(Eventually(120, [&] { return run.Checkpoints().size() == 1; }));
  const TinyRun::Outcome again = Say(run, {"checkpoint", "--json", run.job_path()});
  EXPECT_EQ(nlohmann::json::parse(again.out)["phase"], "RUNNING") << again.err;
  EXPECT_TRUE(Eventually(120, [&] { return run.Checkpoints().size() == 2; }));
  const TinyRun::Outcome events = Say(run, {"events", run.run_folder()});
  EXPECT_EQ(events.exit_code, 0) << events.err;
  EXPECT_THAT(events.out, HasSubstr("  RUNNING"));
  EXPECT_THAT(events.out, HasSubstr("  saved step "));
  const TinyRun::Outcome status = Say(run, {"status", "--json", run.run_folder()});
  EXPECT_EQ(nlohmann::json::parse(status.out)["run_folder"], run.run_folder()) << status.err;
  const TinyRun::Outcome logs = Say(run, {"logs", run.run_folder(), "--rank", "3", "--json"});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_THAT(logs.out, HasSubstr("/rank-3.log\""));
  const TinyRun::Outcome stopped = Say(run, {"stop", run.run_folder()});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  for (const auto& [reader, has_told] :
       {std::pair(watch.get(), "  SUSPENDED"), std::pair(follow.get(), "[3] ")}) {
    const TinyRun::Outcome left = TinyRun::Finish(*reader, 240);
    EXPECT_EQ(left.exit_code, 0) << left.err;
    EXPECT_THAT(left.out, HasSubstr(has_told));
  }
  run.ExpectNothingLeft();
  // Its files tell the same now.
  const TinyRun::Outcome told = Say(run, {"events", run.job_path()});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  std::istringstream lines(events.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" is checked: ") != std::string::npos) continue;  // not in events.jsonl
    EXPECT_THAT(told.out, HasSubstr(line + "\n"));
  }
  EXPECT_THAT(told.out, HasSubstr("  SUSPENDED"));
  const TinyRun::Outcome json = Say(run, {"events", run.run_folder(), "--json"});
  const std::string first = json.out.substr(0, json.out.find('\n'));
  EXPECT_TRUE(nlohmann::json::parse(first).contains("phase")) << first;
  const TinyRun::Outcome written = Say(run, {"logs", run.run_folder(), "--rank", "3", "--json"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("/rank-3.log\""));
  const TinyRun::Outcome all = Say(run, {"logs", "-f", run.job_path(), "--tail", "1"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("[3] "));
  const TinyRun::Outcome none_such = Say(run, {"logs", run.run_folder(), "--rank", "9"});
  EXPECT_EQ(none_such.exit_code, 1);
  EXPECT_THAT(none_such.err, HasSubstr("holds no such log of generation 1"));
  for (const char* verb : {"checkpoint", "watch"}) {
    const TinyRun::Outcome none = Say(run, {verb, run.run_folder()});
    EXPECT_EQ(none.exit_code, 2) << verb;
    EXPECT_THAT(none.err, HasSubstr("nothing runs in " + run.run_folder())) << verb;
  }
}

// Stock grpcio, and what protoc makes of proto/weft/v1/control.proto alone.
TEST(Detached, RunAnswersProgramsOfOthers) {
  constexpr char kPython[] = "/usr/bin/python3";  // Debian's, which has Debian's grpcio
  const std::string imports =
      std::string(kPython) + " -c 'import grpc, google.protobuf' 2>/dev/null";
  const bool has_grpcio = std::system(("timeout 60 " + imports).c_str()) == 0;
  END_FOR_WANT_OF(has_grpcio ? "" : "no grpcio; install python3-grpcio and python3-protobuf");
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--detach", "--set", TinyRun::kEndless}, kPatienceS).exit_code, 0);
  run.WaitForStep(12);
  const std::string generated = run.run_folder() + "/python";
  const std::string protoc = "mkdir " + generated + " && cd " + SourcePath() +
                             " && timeout 60 protoc -I proto --python_out=" + generated +
                             " --grpc_python_out=" + generated +
                             " --plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin"
                             " proto/weft/v1/control.proto";
  ASSERT_EQ(std::system(protoc.c_str()), 0);
  const std::string program =
      "import sys, grpc\n"
      "from weft.v1 import control_pb2 as v1, control_pb2_grpc\n"
      "with grpc.insecure_channel(sys.argv[1]) as channel:\n"
      "    control = control_pb2_grpc.ControlStub(channel)\n"
      "    assert control.Version(v1.VersionRequest(), timeout=10).is_private\n"
      "    job = control.Get(v1.GetRequest(), timeout=10)\n"
      "    seen = 0\n"
      "    for reply in control.Watch(v1.WatchRequest(job_id=job.job_id), timeout=30):\n"
      "        seen += len(reply.events)\n"
      "        if reply.revision >= job.revision: break\n"
      "    print(job.job_id, job.phase, len(control.Hosts(v1.HostsRequest(), timeout=10).hosts),\n"
      "          seen >= 4)\n";
  Child python({kPython, "-B", "-c", program, "unix:" + run.run_folder() + "/weftd.sock"},
               {{"PYTHONPATH", generated}}, run.run_folder() + "/python.out",
               run.run_folder() + "/python.err");
  const TinyRun::Outcome asked = TinyRun::Finish(python, 240);
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.out, "job-1 RUNNING 1 True\n");
  EXPECT_EQ(Say(run, {"stop", run.run_folder()}).exit_code, 0);
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
