#include "checkpoint/folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/manifest.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr absl::string_view kStepPrefix = "step-";
constexpr absl::string_view kStagePrefix = ".stage.";
constexpr absl::string_view kOldPrefix = ".old.";
constexpr size_t kHeadBytes = 16 << 10;  // a path of a run folder fits, however it is escaped
constexpr int kMaxOldNames = 1000;

// The first bytes of a file; empty if it cannot be read.
std::string HeadOf(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  std::string head(kHeadBytes, '\0');
  const ssize_t got = read(fd, head.data(), head.size());
  close(fd);
  head.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return head;
}

// The value in a line `  "key": value,` of a manifest; null if the line is another one.
nlohmann::json ValueIn(absl::string_view line, absl::string_view key) {
  if (!absl::ConsumePrefix(&line, absl::StrCat("  \"", key, "\": ")) ||
      !absl::ConsumeSuffix(&line, ",")) {
    return nullptr;
  }
  return ParseJson(line).value_or(nullptr);
}

// "<run>.<g>.<N>[.<i>]" of the run.
std::optional<PassingFolder> ParsePassing(absl::string_view name, absl::string_view run_id) {
  PassingFolder folder;
  folder.name = std::string(name);
  folder.is_stage = absl::ConsumePrefix(&name, kStagePrefix);
  if (!folder.is_stage && !absl::ConsumePrefix(&name, kOldPrefix)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  if (parts.size() < 3 || parts[0] != run_id || !absl::SimpleAtoi(parts[1], &folder.generation) ||
      !absl::SimpleAtoi(parts[2], &folder.step)) {
    return std::nullopt;
  }
  return folder;
}

}  // namespace

std::string StageFolder(const std::string& folder, absl::string_view run_id, int64_t generation,
                        int64_t step) {
  return absl::StrCat(folder, "/", kStagePrefix, run_id, ".", generation, ".", step);
}

std::string StepFolder(const std::string& folder, int64_t step) {
  return absl::StrCat(folder, "/", kStepPrefix, step);
}

std::string ShardFileName(int rank) {
  return absl::StrFormat("rank-%05d.safetensors", rank);
}

std::string NameOf(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::optional<int64_t> StepOf(const std::string& name) {
  int64_t step = 0;
  if (!absl::StartsWith(name, kStepPrefix) ||
      !absl::SimpleAtoi(absl::string_view(name).substr(kStepPrefix.size()), &step) || step < 0 ||
      name != absl::StrCat(kStepPrefix, step)) {
    return std::nullopt;
  }
  return step;
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  if (dir == nullptr && errno == ENOENT) return names;
  if (dir == nullptr) return FileError(errno, folder, "open");
  errno = 0;
  while (const dirent* entry = readdir(dir.get())) names.emplace_back(entry->d_name);
  if (errno != 0) return FileError(errno, folder, "read");
  return names;
}

absl::StatusOr<std::vector<int64_t>> StepsIn(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

bool IsStepFolder(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(folder, "/", kManifestFile), error);
}

std::optional<Owner> OwnerOf(const std::string& step_folder) {
  const std::string head = HeadOf(absl::StrCat(step_folder, "/", kManifestFile));
  if (!absl::StartsWith(head, "{\n  \"format_version\": ")) return std::nullopt;
  Owner owner;
  for (const absl::string_view line : absl::StrSplit(head, '\n')) {
    if (const auto run = ValueIn(line, "run_id"); run.is_string()) owner.run_id = run;
    if (const auto where = ValueIn(line, "run_folder"); where.is_string()) {
      owner.run_folder = where;
    }
    const auto generation = ValueIn(line, "generation");
    if (generation.is_number_unsigned()) owner.generation = generation;
  }
  return owner;
}

std::string OwnerText(const std::optional<Owner>& owner) {
  if (!owner) return absl::StrCat("another program's (it holds no ", kManifestFile, " of weft's)");
  if (owner->run_id.empty()) return "a run's that it does not name (its manifest is an older one)";
  return absl::StrCat("another run's (", owner->run_folder, ")");
}

absl::StatusOr<std::vector<SavedStep>> StepsOfRun(const std::string& folder,
                                                  absl::string_view run_id) {
  std::vector<SavedStep> own;
  if (run_id.empty()) return own;
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(folder));
  for (const int64_t step : steps) {
    const std::optional<Owner> owner = OwnerOf(StepFolder(folder, step));
    if (owner && owner->run_id == run_id) own.push_back({owner->generation, step});
  }
  std::sort(own.begin(), own.end(), [](const SavedStep& a, const SavedStep& b) {
    return std::tie(a.generation, a.step) > std::tie(b.generation, b.step);
  });
  return own;
}

absl::StatusOr<std::vector<PassingFolder>> PassingFolders(const std::string& folder,
                                                          absl::string_view run_id) {
  std::vector<PassingFolder> passing;
  if (run_id.empty()) return passing;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (auto own = ParsePassing(name, run_id)) passing.push_back(*std::move(own));
  }
  return passing;
}

std::string OldFolder(const std::string& folder, absl::string_view run_id, int64_t generation,
                      int64_t step) {
  const std::string base =
      absl::StrCat(folder, "/", kOldPrefix, run_id, ".", generation, ".", step);
  std::string name = base;
  std::error_code error;
  for (int i = 1; i < kMaxOldNames && std::filesystem::exists(name, error); ++i) {
    name = absl::StrCat(base, ".", i);
  }
  return name;
}

}  // namespace weft
