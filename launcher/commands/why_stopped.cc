// weft why-stopped: what ended a generation of a run, from the run's events: the first cause, where
// it was, who waited for it, and what weft did.
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/run/run_folder.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string run;
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

void PrintLine(const char* name, const std::string& value) {
  if (!value.empty())
    std::cout << "  " << name << std::string(12 - std::string(name).size(), ' ') << value << "\n";
}

void Print(const std::string& folder, const Json& loss) {
  const auto text = [&](const char* key) { return loss.value(key, std::string()); };
  const std::string reason = text("reason");
  const size_t line_end = reason.find('\n');
  std::cout << folder << ", generation " << loss.value("generation", int64_t{0}) << "\n";
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
  if (line_end != std::string::npos)
    std::cout << "  its last words:\n" << reason.substr(line_end + 1) << "\n";
}

int WhyStopped(const Options& options) {
  const absl::StatusOr<RunPaths> paths = FindRun(options.run);
  if (!paths.ok()) return Fail(paths.status());
  const std::optional<Json> loss = LastLoss(paths->events(), options.generation);
  if (options.json) {
    std::cout << (loss ? loss->dump(2) : "null") << "\n";
  } else if (loss) {
    Print(paths->folder, *loss);
  } else {
    std::cout << paths->folder << "\n  no "
              << (options.generation == 0 ? "generation"
                                          : absl::StrCat("generation ", options.generation))
              << " was ended by a failure\n";
  }
  return kExitOk;
}

}  // namespace

void AddWhyStopped(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("why-stopped", "say what ended a generation of a run, and who waited");
  verb->add_option("run", options->run, "a run folder or its job file")->required();
  verb->add_option("--generation", options->generation, "instead of the last one that failed")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "print the event; null if there is none");
  verb->callback([options, exit_code] { *exit_code = WhyStopped(*options); });
}

}  // namespace weft
