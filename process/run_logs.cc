#include "process/run_logs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "process/folder_entry.h"
#include "process/older_file.h"

namespace weft {

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
  uint64_t inode() const { return facts_.st_ino; }
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

namespace {

constexpr size_t kPieceBytes = 64 << 10;

// Where the last so many lines begin. `missing`: how many of them the log does not hold.
int64_t TailOffset(const OpenLog& log, int64_t lines, int64_t* missing) {
  int64_t begin = log.bytes();
  int64_t left = lines + 1;  // line ends, that of the last line too
  *missing = 0;
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
  *missing = log.bytes() > 0 ? left - 1 : lines;  // the first line begins where no other one ends
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
  const OpenLog older(OlderFileOf(path));
  const auto is_asked = [&](const OpenLog& one) {
    return one.ok() && one.written_ms() >= question.since_unix_ms;
  };
  if (!is_asked(log) && !is_asked(older)) return;
  LogFile file{.rank = rank, .name = name, .path = path};
  int64_t missing = question.tail_lines;
  if (log.ok()) {
    file.inode = log.inode();
    if (missing > 0) file.offset = TailOffset(log, missing, &missing);
  }
  const bool is_enough = question.tail_lines > 0 && missing == 0;
  if (is_asked(older) && !is_enough && older.inode() != file.inode) {
    file.inode = older.inode();
    file.offset = question.tail_lines > 0 ? TailOffset(older, missing, &missing) : 0;
  }
  files->push_back(std::move(file));
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename();
    IsOlderFile(name, &name);
    names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// The same log, from the beginning of that file.
LogFile Anew(LogFile file, uint64_t inode) {
  return {.rank = file.rank, .name = file.name, .path = file.path, .inode = inode};
}

// Goes on with the older file, unless that one is told already, or is the newest.
void TakeOlder(LogFile& file, const OpenLog& newest) {
  const auto older = std::make_shared<const OpenLog>(OlderFileOf(file.path));
  const bool is_told = file.left != nullptr && older->ok() && older->inode() == file.inode;
  file.left.reset();
  if (!older->ok() || is_told || (newest.ok() && newest.inode() == older->inode())) return;
  if (older->inode() != file.inode) file = Anew(std::move(file), older->inode());
  file.left = older;
}

std::string NextLines(const OpenLog& log, LogFile& file, bool to_end) {
  std::string text = log.Read(file.offset, kPieceBytes);
  const size_t end = text.rfind('\n');
  if (end != std::string::npos) {
    text.resize(end + 1);
  } else if (text.size() < kPieceBytes && !to_end) {
    return "";
  }
  file.offset += static_cast<int64_t>(text.size());
  return std::exchange(file.begun, "") + text;
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
  const OpenLog newest(file.path);
  if (newest.ok() && (file.inode == 0 || newest.inode() == file.inode)) {
    file.left.reset();
    file.is_drained = false;
    file.inode = newest.inode();
    if (newest.bytes() < file.offset) file.offset = 0;  // it was written anew
    return NextLines(newest, file, to_end);
  }
  if (file.left == nullptr) TakeOlder(file, newest);
  while (file.left != nullptr) {
    std::string text = NextLines(*file.left, file, to_end && !newest.ok());
    if (!text.empty()) file.is_drained = false;
    if (!text.empty() || !newest.ok()) return text;
    // A rank that begins a new file may be amid a line of the old one: two looks find no more.
    if (!std::exchange(file.is_drained, true) && !to_end) {
      file.left.reset();  // whoever follows a thousand ranks holds few files
      return "";
    }
    std::string begun = file.begun + file.left->Read(file.offset, kPieceBytes);
    TakeOlder(file, newest);
    file.begun = std::move(begun);
  }
  if (!newest.ok()) return "";
  std::string begun = std::move(file.begun);
  file = Anew(std::move(file), newest.inode());
  file.begun = std::move(begun);
  return NextLines(newest, file, to_end);
}

}  // namespace weft
