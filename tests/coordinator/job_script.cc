#include "tests/coordinator/job_script.h"

#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {
namespace {

absl::StatusCode ParseCode(const std::string& name) {
  for (int code = 1; code <= 16; ++code) {
    const auto value = static_cast<absl::StatusCode>(code);
    if (absl::StatusCodeToString(value) == name) return value;
  }
  CHECK(!"a status code");
  return absl::StatusCode::kUnknown;
}

struct Where {
  int64_t generation = 0;
  int rank = -1;
};

Where ReadWhere(std::istringstream& words) {
  Where where;
  words >> where.generation;
  if (words.peek() == '/') {
    words.get();
    words >> where.rank;
  }
  return where;
}

Event ParseEnd(int64_t generation, std::istringstream& words) {
  AttemptEnded end;
  end.generation = generation;
  std::string word;
  while (words >> word) {
    if (word == "clean") end.clean = true;
    if (word == "rank") words >> end.rank;
    if (word == "signal") words >> end.signal;
    if (word == "exit") words >> end.exit_code;
    if (word == "on") words >> end.machine;
  }
  return end;
}

Event ParseRankEnd(const Where& at, std::istringstream& words) {
  RankEnded end;
  end.generation = at.generation;
  end.rank = at.rank;
  std::string word;
  while (words >> word) {
    if (word == "signal") words >> end.signal;
    if (word == "exit") words >> end.exit_code;
  }
  return end;
}

Event ParseLaunch(int64_t generation, std::istringstream& words) {
  std::string machine;
  std::string word;
  if (words >> word && word == "on") words >> machine;
  return Launched{generation, {HostShare{machine, "here", {}, {0, 1}}}};
}

Event ParseHostLost(int64_t generation, std::istringstream& words) {
  HostLost lost{generation, "", "silent"};
  std::string word;
  if (words >> word && word == "on") words >> lost.machine;
  return lost;
}

Event ParseOffer(std::istringstream& words) {
  std::string machine;
  words >> machine;
  return HostOffered{machine, machine, 0, {}};
}

// A job that asks for three hosts of a slot each and goes on with two.
Event SubmittedForThree(std::istringstream& words) {
  Submitted submitted;
  words >> submitted.request_id;
  submitted.spec = SmallJob();
  submitted.spec.cluster.nodes = 3;
  submitted.spec.cluster.slots_per_node = 1;
  submitted.spec.hosts.least_nodes = 2;
  submitted.run_folder = "/run";
  return submitted;
}

Event PlannedFor(int hosts) {
  Planned planned{TwoRanks(), 1000};
  planned.layout.dp = planned.shape.nodes = hosts;
  return planned;
}

// A rank on each of the hosts m1, m2...
Event LaunchedOn(int hosts, int64_t generation) {
  Launched launched{generation};
  for (int rank = 0; rank < hosts; ++rank) {
    const std::string host = absl::StrCat("m", rank + 1);
    launched.shares.push_back({host, host, {}, {rank}});
  }
  return launched;
}

// Facts of a job on several hosts.
std::optional<Event> ParseHostFact(const std::string& verb, std::istringstream& words) {
  if (verb == "submit3") return SubmittedForThree(words);
  if (verb == "plan2" || verb == "plan3") return PlannedFor(verb == "plan2" ? 2 : 3);
  if (verb == "offer") return ParseOffer(words);
  if (verb == "launch2") return LaunchedOn(2, ReadWhere(words).generation);
  if (verb == "launch3") return LaunchedOn(3, ReadWhere(words).generation);
  if (verb == "refuse2" || verb == "refuse3") {
    return PlanRefused{absl::StatusCode::kFailedPrecondition,
                       "nothing fits",
                       {.nodes = verb == "refuse2" ? 2 : 3}};
  }
  if (verb == "more") return MoreHosts{ReadWhere(words).generation};
  if (verb == "away") {
    HostAway away;
    words >> away.machine;
    return away;
  }
  if (verb == "leaves") {
    HostLeaves leaves;
    words >> leaves.machine;
    return leaves;
  }
  if (verb == "awaited") return HostsAwaited{ReadWhere(words).generation};
  return std::nullopt;
}

std::string GenerationText(GenerationPhase phase) {
  switch (phase) {
    case GenerationPhase::kOpen:
      return "open";
    case GenerationPhase::kLaunched:
      return "launched";
    case GenerationPhase::kSealed:
      return "sealed";
    case GenerationPhase::kTraining:
      return "training";
    case GenerationPhase::kStopping:
      return "stopping";
    case GenerationPhase::kClosed:
      return "closed";
  }
  return "";
}

std::string CommandText(const Command& command) {
  if (std::holds_alternative<PlanJob>(command)) return "plan";
  if (const auto* c = std::get_if<LaunchWorkers>(&command)) {
    return absl::StrCat("launch g", c->generation);
  }
  if (const auto* c = std::get_if<StopWorkers>(&command)) {
    return absl::StrCat("stop_group g", c->generation);
  }
  if (const auto* c = std::get_if<StartTraining>(&command)) {
    return absl::StrCat("train g", c->generation);
  }
  if (const auto* c = std::get_if<BeginSteps>(&command)) {
    return absl::StrCat("begin g", c->generation);
  }
  if (const auto* c = std::get_if<StopTraining>(&command)) {
    return absl::StrCat("stop_training g", c->generation);
  }
  if (const auto* c = std::get_if<SaveSteps>(&command)) {
    return absl::StrCat("save g", c->generation, " wish ", c->number);
  }
  if (const auto* c = std::get_if<GrantCommit>(&command)) {
    return absl::StrCat("commit g", c->generation, " ", c->step);
  }
  if (const auto* c = std::get_if<EndSave>(&command)) {
    return absl::StrCat("save_over ", c->number);
  }
  return absl::StrCat("abort g", std::get<AbortWorkers>(command).generation);
}

}  // namespace

JobSpec SmallJob() {
  JobSpec job;
  job.name = "small";
  job.training.steps = 20;
  job.fault_tolerance.preflight = false;  // preflight_test.cc
  return job;
}

Layout TwoRanks() {
  Layout layout;
  layout.dp = 2;
  return layout;
}

Event ParseFact(const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "submit") {
    Submitted submitted;
    words >> submitted.request_id;
    submitted.spec = SmallJob();
    submitted.run_folder = "/run";
    return submitted;
  }
  if (const std::optional<Event> fact = ParseHostFact(verb, words)) return *fact;
  if (verb == "plan") return Planned{TwoRanks(), 1000};
  if (verb == "refuse") return PlanRefused{absl::StatusCode::kFailedPrecondition, "nothing fits"};
  if (verb == "stop") return StopAsked{false};
  if (verb == "kill") return StopAsked{true};
  if (verb == "save_now") return CheckpointAsked{};
  if (verb == "restart") return Restarted{};
  const Where at = ReadWhere(words);
  int64_t step = 0;
  if (verb == "launch") return ParseLaunch(at.generation, words);
  if (verb == "rank_ended") return ParseRankEnd(at, words);
  if (verb == "overdue") return Overdue{at.generation, "too late"};
  if (verb == "silent") return ParseHostLost(at.generation, words);
  if (verb == "ended") return ParseEnd(at.generation, words);
  if (verb == "register" || verb == "register3") {
    const int64_t pid = 100 * at.generation + at.rank;
    return Registered{at.generation, at.rank, "here", pid, "v", verb == "register" ? 2 : 3};
  }
  if (verb == "ready") return Ready{at.generation, at.rank, 0, 1000, 1000};
  if (verb == "suspect") return Suspected{at.generation, at.rank, "stream broke"};
  if (verb == "lost") return WorkerLost{at.generation, at.rank, "silent"};
  if (verb == "fault") {
    std::string code;
    std::string message;
    words >> code >> message;
    return Faulted{at.generation, at.rank, ParseCode(code), message, false};
  }
  if (verb == "unloadable") {
    std::string code;
    words >> code;
    return Faulted{at.generation, at.rank, ParseCode(code), "torn", true};
  }
  words >> step;
  int64_t number = 0;
  if (!(words >> number)) number = step;  // it only has to grow
  if (verb == "shard") {
    return ShardWritten{
        at.generation, at.rank, step, number, {absl::StrCat("rank-", at.rank), 10, "aa"}};
  }
  if (verb == "nosave") return SaveFailed{at.generation, at.rank, step, number, "disk full"};
  if (verb == "committed") {
    return Committed{at.generation, at.rank, step, absl::StrCat("step-", step), 20};
  }
  if (verb == "finish") return Finished{at.generation, at.rank, step, false};
  if (verb == "stopped") return Finished{at.generation, at.rank, step, true};
  CHECK(!"a fact");
  return Restarted{};
}

std::string JobText(const Job& job) {
  std::vector<std::string> duties;
  for (const Command& command : Decide(job)) duties.push_back(CommandText(command));
  return absl::StrCat(PhaseName(job.phase), " g", job.generation.number, " ",
                      GenerationText(job.generation.phase), duties.empty() ? "" : " | ",
                      absl::StrJoin(duties, ", "));
}

}  // namespace weft
