#include "data/file_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

// Files of patterns, with bounds on what is looked at: "/*/*/*/*/*" is the whole machine.
class Pattern {
 public:
  static absl::StatusOr<std::vector<std::string>> Expand(const std::string& pattern) {
    std::error_code error;
    if (std::filesystem::exists(pattern, error)) return std::vector<std::string>{pattern};
    Pattern found;
    found.paths_ = {absl::StartsWith(pattern, "/") ? "/" : ""};
    for (const absl::string_view part : absl::StrSplit(pattern, '/', absl::SkipEmpty())) {
      found.Descend(std::string(part));
      if (found.looked_at_ <= kMostEntries && std::ssize(found.paths_) <= kMostFiles) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          pattern, " meets more than ", kMostEntries, " files and folders, or matches more than ",
          kMostFiles, "; name fewer, with fewer wildcards"));
    }
    std::sort(found.paths_.begin(), found.paths_.end());  // by bytes: the same on every machine
    return found.paths_;
  }

 private:
  static constexpr int64_t kMostEntries = 200'000;
  static constexpr int64_t kMostFiles = 20'000;  // each becomes a mapping of every worker

  // Replaces each path so far by what in it matches `part`.
  void Descend(const std::string& part) {
    std::vector<std::string> next;
    for (const std::string& path : paths_) {
      if (part.find_first_of("*?[\\") == std::string::npos) {
        std::error_code error;
        const std::string inner = Join(path, part);
        ++looked_at_;
        if (std::filesystem::exists(inner, error)) next.push_back(inner);
      } else {
        List(path, part, &next);
      }
      if (looked_at_ > kMostEntries) break;
    }
    paths_ = std::move(next);
  }

  void List(const std::string& folder, const std::string& part, std::vector<std::string>* into) {
    std::error_code error;
    const std::filesystem::path here = folder.empty() ? "." : folder;
    for (std::filesystem::directory_iterator entry(here, error), end; !error && entry != end;
         entry.increment(error)) {
      if (++looked_at_ > kMostEntries) return;
      const std::string name = entry->path().filename().string();
      if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
        into->push_back(Join(folder, name));
      }
    }
  }

  static std::string Join(const std::string& folder, const std::string& name) {
    return folder.empty() || folder == "/" ? folder + name : absl::StrCat(folder, "/", name);
  }

  std::vector<std::string> paths_;
  int64_t looked_at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFilePattern(const std::string& pattern) {
  return Pattern::Expand(pattern);
}

}  // namespace weft
