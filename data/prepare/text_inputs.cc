#include "data/prepare/text_inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/file_pattern.h"
#include "data/prepare/byte_source.h"
#include "plan/errors.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostEntries = 1'000'000;
constexpr absl::string_view kOption = "--input-format text or jsonl";

absl::Status Refusal(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

// TextSearch is one search: what has been found so far.
class TextSearch {
 public:
  TextSearch(std::optional<TextFormat> format, std::vector<std::string>* notes)
      : format_(format), notes_(notes) {}

  absl::Status AddFile(const std::string& path) {
    TextInput input{.path = path};
    if (format_) {
      input.format = *format_;
    } else {
      const absl::StatusOr<TextFormat> named = FormatOfName(path, kOption);
      if (!named.ok()) return Refusal(path, named.status().message());
      input.format = *named;
    }
    if (!seen_.insert(path).second) return Refusal(path, "is named twice; name each file once");
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      // Whatever it is, it is said before anything is written.
      RETURN_IF_ERROR(ByteSource::Open(path, nullptr).status());
      input.stored_bytes = static_cast<int64_t>(fs::file_size(path, error));
    } else if (!fs::is_fifo(path, error)) {
      return Refusal(path, "is a device or a socket, expected a file of text");
    }
    found_.push_back(std::move(input));
    return absl::OkStatus();
  }

  absl::Status AddFolder(const std::string& folder) {
    std::vector<std::string> files, passed_over;
    std::error_code error;
    fs::recursive_directory_iterator entry(folder, error);
    int64_t looked_at = 0;
    for (const fs::recursive_directory_iterator end; !error && entry != end;
         entry.increment(error)) {
      if (++looked_at > kMostEntries) {
        return Refusal(folder,
                       absl::StrCat("holds more than ", kMostEntries, " files; name fewer"));
      }
      const std::string path = entry->path().string();
      const bool is_hidden = absl::StartsWith(entry->path().filename().string(), ".");
      std::error_code no_matter;
      if (is_hidden) {
        entry.disable_recursion_pending();
      } else if (fs::is_regular_file(path, no_matter)) {
        files.push_back(path);
      }
    }
    if (error) return Refusal(folder, absl::StrCat("cannot be read: ", error.message()));
    std::sort(files.begin(), files.end());
    const size_t before = found_.size();
    for (const std::string& path : files) {
      if (format_ || FormatOfName(path).ok()) {
        RETURN_IF_ERROR(AddFile(path));
      } else {
        passed_over.push_back(path);
      }
    }
    if (found_.size() == before) return NoneIn(folder, passed_over);
    if (!passed_over.empty()) {
      notes_->push_back(absl::StrCat(folder, ": ", passed_over.size(),
                                     passed_over.size() == 1 ? " file is" : " files are",
                                     " passed over, whose names are of no text: ", passed_over[0],
                                     passed_over.size() == 1 ? "" : ", ..."));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& path) {
    std::error_code error;
    return fs::is_directory(path, error) ? AddFolder(path) : AddFile(path);
  }

  std::vector<TextInput> found() && { return std::move(found_); }

 private:
  static absl::Status NoneIn(const std::string& folder,
                             const std::vector<std::string>& passed_over) {
    if (passed_over.empty()) return Refusal(folder, "holds no file; name a folder with texts");
    return Refusal(passed_over[0], FormatOfName(passed_over[0], kOption).status().message());
  }

  const std::optional<TextFormat> format_;
  std::vector<std::string>* const notes_;
  std::vector<TextInput> found_;
  std::set<std::string> seen_;
};

}  // namespace

absl::StatusOr<std::vector<TextInput>> FindTextInputs(const std::vector<std::string>& named,
                                                      std::optional<TextFormat> format,
                                                      std::vector<std::string>* notes) {
  if (std::find(named.begin(), named.end(), kStandardInput) != named.end()) {
    if (named.size() > 1) return Refusal(kStandardInput, "is standard input; name it alone");
    return std::vector<TextInput>{{kStandardInput, format.value_or(TextFormat::kJsonl)}};
  }
  TextSearch search(format, notes);
  for (const std::string& name : named) {
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, ExpandFilePattern(name));
    if (paths.empty()) {
      const bool is_pattern = name.find_first_of("*?[") != std::string::npos;
      return Refusal(name, is_pattern ? "matches no file" : "no such file");
    }
    for (const std::string& path : paths) RETURN_IF_ERROR(search.Add(path));
  }
  return std::move(search).found();
}

}  // namespace weft
