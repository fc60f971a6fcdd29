// weft why-stopped: what ended a generation of a run, from the run's events, or of a job of a
// weftd, from what that keeps: the first cause, where it was, who waited for it, and what weft did;
// and whether a rank was slow, be it that nothing has ended.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/job_history.h"
#include "launcher/commands/service_options.h"
#include "launcher/run/run_folder.h"
#include "launcher/service/harmless.h"
#include "launcher/service/job_view.h"
#include "plan/errors.h"
#include "proto/loss_json.h"
#include "text/json_lines.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ServiceWords words;
  std::string run;         // or a job, as job-17
  int64_t generation = 0;  // 0: the last that was ended by a failure
  bool json = false;
};

// Returns what a file says, whatever that is.
std::string TextIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t NumberIn(const Json& json, const char* key, int64_t otherwise = 0) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

double FractionIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

// Findings takes the events of a run in their order, and keeps the last loss and the last rank that
// was slow.
class Findings {
 public:
  explicit Findings(int64_t generation) : wanted_(generation) {}

  void Take(const Json& event) {
    const std::string name = TextIn(event, "event");
    const int64_t generation = NumberIn(event, "generation");
    const bool goes_on = name != "phase" || TextIn(event, "phase") == "RUNNING" ||
                         TextIn(event, "phase") == "DRAINING";
    if (slow_ && (!goes_on || generation > NumberIn(*slow_, "generation"))) End(Json());
    if (wanted_ != 0 && generation != wanted_) return;
    // A root cause that became known later stands after the consequence that it replaces.
    if (name == "rank_lost") loss_ = event;
    if (name == "rank_slow") {
      slow_ = event;
      slow_->emplace("over", false);
    }
    if (name == "no_rank_slow" && slow_) End(event);
  }

  const std::optional<Json>& loss() const { return loss_; }
  // Has "over", and "until_step" and "until_unix_ms" if its slowness was.
  const std::optional<Json>& slow() const { return slow_; }

 private:
  // It has ended by itself, as `event` tells, or with its generation.
  void End(const Json& event) {
    if (slow_->at("over") == true) return;
    slow_->at("over") = true;
    if (!event.is_object()) return;
    (*slow_)["until_step"] = NumberIn(event, "since_step");
    (*slow_)["until_unix_ms"] = NumberIn(event, "unix_ms");
  }

  int64_t wanted_;
  std::optional<Json> loss_;
  std::optional<Json> slow_;
};

Findings OfRun(const std::string& path, int64_t generation) {
  Findings findings(generation);
  const LinesLeftOut left_out = ForEachJsonLine(
      LinesOfRun(path), {}, [&findings](const Json& event) { findings.Take(event); });
  if (left_out.count > 0) std::cerr << "weft: warning: " << left_out.Text() << "\n";
  return findings;
}

// The same of a job, from what weftd keeps.
absl::StatusOr<Findings> OfJob(const Options& options) {
  ASSIGN_OR_RETURN(const auto client, OpenService(options.words));
  Findings findings(options.generation);
  const auto on_event = [&](const v1::Event& event) {
    Json json = {{"unix_ms", event.unix_ms()},
                 {"revision", event.revision()},
                 {"generation", event.generation()}};
    if (event.has_lost()) AddLoss(event.lost(), json);
    if (event.has_rank_slow()) AddSlow(event.rank_slow(), json);
    if (event.has_phase()) {
      json["event"] = "phase";
      json["phase"] = event.phase().phase();
    }
    findings.Take(json);
  };
  RETURN_IF_ERROR(ReadHistory(*client, options.run, on_event));
  return findings;
}

void PrintLine(const char* name, const std::string& value) {
  if (!value.empty())
    std::cout << "  " << name << std::string(12 - std::string(name).size(), ' ') << Harmless(value)
              << "\n";
}

void PrintLoss(const std::string& run, const Json& loss) {
  const auto text = [&](const char* key) { return TextIn(loss, key); };
  const std::string reason = text("reason");
  const size_t line_end = reason.find('\n');
  std::cout << run << ", generation " << NumberIn(loss, "generation") << "\n";
  PrintLine("cause", text("why").empty() ? reason.substr(0, line_end) : text("why"));
  const int64_t rank = NumberIn(loss, "rank", -1);
  if (rank >= 0) PrintLine("rank", absl::StrCat(rank));
  PrintLine("host", text("host"));
  if (!text("phase").empty()) {
    const int64_t step = NumberIn(loss, "step");
    PrintLine("phase", step > 0 ? absl::StrCat(text("phase"), ", step ", step) : text("phase"));
    PrintLine("collective", text("collective"));
    PrintLine("waiting", text("waiting"));
    PrintLine("still for", absl::StrCat(FractionIn(loss, "stood_still_s"), " s"));
  }
  PrintLine("weft", text("did"));
  for (const Json& file : loss.value("stacks", Json::array())) {
    if (file.is_string()) PrintLine("stacks", file.get<std::string>());
  }
  if (line_end != std::string::npos) std::cout << "  its last words:\n";
  for (const std::string& line :
       HarmlessLines(line_end == std::string::npos ? "" : reason.substr(line_end + 1))) {
    std::cout << line << "\n";
  }
}

std::string TimeAndStep(int64_t unix_ms, int64_t step) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone());
  return step > 0 ? absl::StrCat("step ", step, ", told at ", time) : absl::StrCat("before ", time);
}

void PrintSlow(const Json& slow) {
  std::cout << "a rank " << (slow.at("over") == true ? "was" : "is") << " slow, generation "
            << NumberIn(slow, "generation") << "\n";
  PrintLine("rank", absl::StrCat(NumberIn(slow, "rank", -1)));
  PrintLine("host", TextIn(slow, "host"));
  PrintLine("computes",
            absl::StrFormat("for %.0f %% of each step, %.1f times as long as the ranks "
                            "that do the same; they wait for it",
                            100 * FractionIn(slow, "share"), FractionIn(slow, "times")));
  PrintLine("since", TimeAndStep(NumberIn(slow, "unix_ms"), NumberIn(slow, "since_step")));
  if (slow.contains("until_unix_ms")) {
    PrintLine("until", TimeAndStep(NumberIn(slow, "until_unix_ms"), NumberIn(slow, "until_step")));
  } else if (slow.at("over") == true) {
    PrintLine("until", "the end of its generation");
  }
}

// A program finds the slow rank in "slow", whether a generation has failed or not.
std::string JsonOf(const Findings& findings) {
  Json json = findings.loss().value_or(Json());
  if (findings.slow()) json["slow"] = *findings.slow();
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

void Print(const Options& options, const std::string& run, const Findings& findings) {
  if (options.json) {
    std::cout << JsonOf(findings) << "\n";
    return;
  }
  if (findings.loss()) {
    PrintLoss(run, *findings.loss());
  } else {
    std::cout << run << "\n  no "
              << (options.generation == 0 ? "generation"
                                          : absl::StrCat("generation ", options.generation))
              << " was ended by a failure\n";
  }
  if (findings.slow()) PrintSlow(*findings.slow());
}

int WhyStopped(const Options& options) {
  if (IsJobId(options.run)) {
    const auto findings = OfJob(options);
    if (!findings.ok()) return FailCall(findings.status());
    Print(options, options.run, *findings);
    return kExitOk;
  }
  const absl::StatusOr<RunPaths> paths = FindRun(options.run);
  if (!paths.ok()) return Fail(paths.status());
  Print(options, paths->folder, OfRun(paths->events(), options.generation));
  return kExitOk;
}

}  // namespace

void AddWhyStopped(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "why-stopped", "say what ended a generation of a run, who waited, and which rank was slow");
  verb->add_option("run", options->run, "a run folder or its job file; or a job, as job-17")
      ->required();
  verb->add_option("--generation", options->generation, "instead of the last one that failed")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json,
                 "print the event, with the slow rank as its \"slow\"; null if there is neither");
  AddServiceOptions(*verb, &options->words);
  verb->callback([options, exit_code] { *exit_code = WhyStopped(*options); });
}

}  // namespace weft
