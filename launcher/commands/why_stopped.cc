// weft why-stopped: what ended a generation of a run, from the run's events, or of a job of a
// weftd, from what that keeps: the first cause, where it was, who waited for it, and what weft did.
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/job_history.h"
#include "launcher/commands/service_options.h"
#include "launcher/run/run_folder.h"
#include "launcher/service/harmless.h"
#include "launcher/service/job_view.h"
#include "plan/errors.h"
#include "proto/loss_json.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ServiceWords words;
  std::string run;         // or a job, as job-17
  int64_t generation = 0;  // 0: the last that was ended by a failure
  bool json = false;
};

// A root cause that became known later stands after the consequence that it replaces.
std::optional<Json> LastLoss(const std::string& path, int64_t generation) {
  std::optional<Json> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || event.value("event", "") != "rank_lost") continue;
    if (generation != 0 && event.value("generation", int64_t{0}) != generation) continue;
    found = std::move(event);
  }
  return found;
}

// The same of a job, from what weftd keeps.
absl::StatusOr<std::optional<Json>> LastLossOfJob(const Options& options) {
  ASSIGN_OR_RETURN(const auto client, OpenService(options.words));
  std::optional<Json> found;
  const auto on_event = [&](const v1::Event& event) {
    if (!event.has_lost()) return;
    if (options.generation != 0 && event.generation() != options.generation) return;
    found = Json{{"unix_ms", event.unix_ms()},
                 {"revision", event.revision()},
                 {"generation", event.generation()}};
    AddLoss(event.lost(), *found);
  };
  RETURN_IF_ERROR(ReadHistory(*client, options.run, on_event));
  return found;
}

void PrintLine(const char* name, const std::string& value) {
  if (!value.empty())
    std::cout << "  " << name << std::string(12 - std::string(name).size(), ' ') << Harmless(value)
              << "\n";
}

void Print(const std::string& run, const Json& loss) {
  const auto text = [&](const char* key) { return loss.value(key, std::string()); };
  const std::string reason = text("reason");
  const size_t line_end = reason.find('\n');
  std::cout << run << ", generation " << loss.value("generation", int64_t{0}) << "\n";
  PrintLine("cause", text("why").empty() ? reason.substr(0, line_end) : text("why"));
  if (loss.value("rank", -1) >= 0) PrintLine("rank", absl::StrCat(loss.value("rank", -1)));
  PrintLine("host", text("host"));
  if (!text("phase").empty()) {
    const int64_t step = loss.value("step", int64_t{0});
    PrintLine("phase", step > 0 ? absl::StrCat(text("phase"), ", step ", step) : text("phase"));
    PrintLine("collective", text("collective"));
    PrintLine("waiting", text("waiting"));
    PrintLine("still for", absl::StrCat(loss.value("stood_still_s", 0.0), " s"));
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

void PrintLoss(const Options& options, const std::string& run, const std::optional<Json>& loss) {
  if (options.json) {
    std::cout << (loss ? loss->dump(2) : "null") << "\n";
  } else if (loss) {
    Print(run, *loss);
  } else {
    std::cout << run << "\n  no "
              << (options.generation == 0 ? "generation"
                                          : absl::StrCat("generation ", options.generation))
              << " was ended by a failure\n";
  }
}

int WhyStopped(const Options& options) {
  if (IsJobId(options.run)) {
    const auto loss = LastLossOfJob(options);
    if (!loss.ok()) return FailCall(loss.status());
    PrintLoss(options, options.run, *loss);
    return kExitOk;
  }
  const absl::StatusOr<RunPaths> paths = FindRun(options.run);
  if (!paths.ok()) return Fail(paths.status());
  PrintLoss(options, paths->folder, LastLoss(paths->events(), options.generation));
  return kExitOk;
}

}  // namespace

void AddWhyStopped(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("why-stopped", "say what ended a generation of a run, and who waited");
  verb->add_option("run", options->run, "a run folder or its job file; or a job, as job-17")
      ->required();
  verb->add_option("--generation", options->generation, "instead of the last one that failed")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "print the event; null if there is none");
  AddServiceOptions(*verb, &options->words);
  verb->callback([options, exit_code] { *exit_code = WhyStopped(*options); });
}

}  // namespace weft
