// weft keys: what a job file may hold, out of the table that reads it.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/job_schema.h"
#include "plan/keys/job_keys.h"
#include "plan/keys/key_names.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

struct Arguments {
  std::string pattern;
  bool schema = false;
  bool json = false;
};

// A pattern is looked for in the key, in its names elsewhere and in its sentence.
std::vector<const JobKey*> KeysLike(const std::string& pattern) {
  std::vector<const JobKey*> found;
  for (const JobKey& key : JobKeys()) {
    const std::string text = absl::StrCat(key.key, " ", key.aliases, " ", MeaningText(key));
    const bool is_like =
        absl::StrContains(absl::AsciiStrToLower(text), absl::AsciiStrToLower(pattern));
    if (is_like || CanonicalKey(pattern) == key.key) found.push_back(&key);
  }
  return found;
}

void Print(const JobKey& key) {
  std::cout << key.key << (key.planned_only ? " *" : "") << "\n  " << MeaningText(key) << "\n";
  if (key.kind == KeyKind::kNotBuilt) {
    std::cout << "  not supported yet; accepted: "
              << (key.otherwise.empty() ? "nothing" : key.otherwise) << "\n";
    return;
  }
  const std::string limits = std::isfinite(key.limits.least) || std::isfinite(key.limits.most)
                                 ? absl::StrCat("; allowed: ", key.limits.Text())
                                 : "";
  std::cout << "  default: " << DefaultText(key) << limits << "; "
            << (key.kind == KeyKind::kAdjustable ? "mathematics that --accept-changes may change"
                : key.kind == KeyKind::kInput    ? "other keys hold what it says"
                : IsMathematics(key.kind)        ? "mathematics: a run keeps it"
                                                 : "execution: a run may change it")
            << "\n";
  if (!key.aliases.empty()) std::cout << "  also read: " << key.aliases << "\n";
}

int Keys(const Arguments& arguments) {
  if (arguments.schema) {
    if (!arguments.pattern.empty() || arguments.json) {
      return Fail(
          absl::InvalidArgumentError("--schema: is of all keys; leave the pattern and --json out"));
    }
    std::cout << JobSchema();
    return kExitOk;
  }
  const std::vector<const JobKey*> found = KeysLike(arguments.pattern);
  if (found.empty()) {
    std::vector<std::string> known;
    for (const JobKey& key : JobKeys()) known.emplace_back(key.key);
    for (const JobKey& key : JobKeys()) known.emplace_back(key.name());
    const std::optional<std::string> nearest = Nearest(arguments.pattern, known);
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "no key is like ", arguments.pattern,
        nearest ? absl::StrCat("; did you mean ", *nearest, "?") : "; weft keys lists all")));
  }
  if (arguments.json) {
    std::cout << KeysJson(found);
    return kExitOk;
  }
  for (const JobKey* key : found) Print(*key);
  const bool any_planned =
      std::any_of(found.begin(), found.end(), [](const JobKey* key) { return key->planned_only; });
  if (any_planned) std::cout << "* weft plan prices every value; weft run refuses some by name\n";
  return kExitOk;
}

}  // namespace

void AddKeys(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* keys = app.add_subcommand("keys", "list the keys of a job file");
  keys->add_option("pattern", arguments->pattern,
                   "a part of a key, of its name elsewhere or of its meaning");
  keys->add_flag("--schema", arguments->schema, "print a JSON Schema for editors");
  keys->add_flag("--json", arguments->json, "print the keys as JSON");
  keys->callback([arguments, exit_code] { *exit_code = Keys(*arguments); });
}

}  // namespace weft
