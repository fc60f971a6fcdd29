#include "process/run_logs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

// A descriptor that is closed where it goes out of scope; -1: the file cannot be read.
class OpenLog {
 public:
  explicit OpenLog(const std::string& path)
      : descriptor_(OpenEntry(LogEntryOf(path), EntryUse::kShow).descriptor) {
    if (descriptor_ >= 0 && fstat(descriptor_, &facts_) != 0) {
      close(descriptor_);
      descriptor_ = -1;
    }
  }
  ~OpenLog() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenLog(const OpenLog&) = delete;
  OpenLog& operator=(const OpenLog&) = delete;

  bool ok() const { return descriptor_ >= 0; }
  int64_t bytes() const { return facts_.st_size; }
  int64_t written_ms() const {
    return facts_.st_mtim.tv_sec * 1000 + facts_.st_mtim.tv_nsec / 1000000;
  }
  // Returns what there is, at most `bytes`.
  std::string Read(int64_t offset, size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t got = pread(descriptor_, text.data(), bytes, offset);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

 private:
  int descriptor_;
  struct stat facts_ = {};
};

// Where the last so many lines begin.
int64_t TailOffset(const OpenLog& log, int64_t lines) {
  int64_t begin = log.bytes();
  int64_t left = lines + 1;  // line ends, that of the last line too
  while (begin > 0) {
    const int64_t from = std::max<int64_t>(0, begin - static_cast<int64_t>(kPieceBytes));
    const std::string piece = log.Read(from, static_cast<size_t>(begin - from));
    for (size_t i = piece.size(); i > 0; --i) {
      const bool is_last = from + static_cast<int64_t>(i) == log.bytes();
      if (piece[i - 1] != '\n') {
        if (is_last) --left;  // the last line has no end yet
        continue;
      }
      if (--left == 0) return from + static_cast<int64_t>(i);
    }
    begin = from;
  }
  return 0;
}

std::optional<int> RankOf(const std::string& name) {
  absl::string_view text = name;
  int rank = -1;
  const bool is_one = absl::ConsumePrefix(&text, "rank-") && absl::ConsumeSuffix(&text, ".log") &&
                      absl::SimpleAtoi(text, &rank);
  return is_one ? std::optional(rank) : std::nullopt;
}

void AddFile(const LogQuestion& question, const std::string& logs, const std::string& name,
             int rank, std::vector<LogFile>* files) {
  const std::string path = absl::StrCat(logs, "/", name);
  const OpenLog log(path);
  if (!log.ok() || log.written_ms() < question.since_unix_ms) return;
  const int64_t offset = question.tail_lines > 0 ? TailOffset(log, question.tail_lines) : 0;
  files->push_back({rank, name, path, offset});
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<LogFile> FindLogs(const LogQuestion& question) {
  const std::string logs = question.run_folder + "/logs";
  const std::string generation = absl::StrCat("generation-", question.generation);
  std::vector<LogFile> files;
  for (const std::string& name : NamesIn(absl::StrCat(logs, "/", generation))) {
    const std::optional<int> rank = RankOf(name);
    const bool wanted =
        question.ranks.empty() ||
        (rank && std::count(question.ranks.begin(), question.ranks.end(), *rank) > 0);
    if (wanted)
      AddFile(question, logs, absl::StrCat(generation, "/", name), rank.value_or(-1), &files);
  }
  if (question.ranks.empty()) {
    for (const std::string& name : NamesIn(logs)) AddFile(question, logs, name, -1, &files);
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const LogFile& a, const LogFile& b) { return a.rank < b.rank; });
  return files;
}

std::string ReadLines(LogFile& file, bool to_end) {
  const OpenLog log(file.path);
  if (!log.ok()) return "";
  if (log.bytes() < file.offset) file.offset = 0;  // it was written anew
  std::string text = log.Read(file.offset, kPieceBytes);
  const size_t end = text.rfind('\n');
  const bool is_whole = end != std::string::npos;
  if (is_whole) {
    text.resize(end + 1);
  } else if (text.size() < kPieceBytes && !to_end) {
    return "";
  }
  file.offset += static_cast<int64_t>(text.size());
  return text;
}

}  // namespace weft
