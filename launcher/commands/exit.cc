// Every verb ends here: one place turns a status into a sentence and an exit code.
#include <algorithm>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/unicode.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/spec/nearest.h"

namespace weft {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kExitNothingFits;
    case absl::StatusCode::kUnavailable:
      return kExitTryAgain;
    default:
      return kExitFailed;
  }
}

int Fail(const absl::Status& status) {
  std::cerr << "weft: " << Printable(status.message()) << "\n";
  return ExitCodeOf(status);
}

int FailUsage(const CLI::App& app, absl::string_view first_word, const std::string& error) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(verb->get_name());
  }
  const bool is_verb = std::find(verbs.begin(), verbs.end(), first_word) != verbs.end();
  if (first_word.empty() || first_word[0] == '-' || is_verb) {
    std::cerr << "weft: " << Printable(error) << "; see weft --help\n";
    return kExitUsage;
  }
  const std::optional<std::string> nearest = Nearest(first_word, verbs);
  std::cerr << "weft: unknown command " << Printable(first_word)
            << (nearest ? absl::StrCat("; did you mean ", *nearest, "?") : "; see weft --help")
            << "\n";
  return kExitUsage;
}

int FailJobFile(const absl::Status& status) {
  const std::string text = Printable(status.message());
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  const bool more = lines > static_cast<int64_t>(Issues::kMostShown);
  std::cerr << text << "\n";
  std::cerr << "weft: " << (more ? "more than " : "") << lines - (more ? 1 : 0)
            << (lines == 1 ? " error" : " errors") << "; nothing was started\n";
  return kExitUsage;
}

}  // namespace weft
