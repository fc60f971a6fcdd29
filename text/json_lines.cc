#include "text/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 16;

// LineReader cuts a file into lines. Of a line that is longer than any that is meant, no more than
// its first bytes are held.
class LineReader {
 public:
  struct Line {
    int64_t at_byte = 0;
    std::string text;      // without its end
    bool is_long = false;  // there is more of it
  };

  LineReader(int file, int64_t from, int64_t end) : file_(file), next_(from), end_(end) {}

  // Nothing: that was the last one.
  std::optional<Line> Next() {
    Line line{.at_byte = next_ - static_cast<int64_t>(piece_.size() - used_), .text = ""};
    while (true) {
      if (used_ == piece_.size() && !Read()) {
        if (line.text.empty()) return std::nullopt;
        return line;
      }
      const size_t line_end = piece_.find('\n', used_);
      const size_t until = std::min(line_end, piece_.size());
      const size_t room = static_cast<size_t>(kMostJsonBytes) - line.text.size();
      line.text.append(piece_, used_, std::min(until - used_, room));
      line.is_long = line.is_long || until - used_ > room;
      used_ = until;
      if (line_end == std::string::npos) continue;
      ++used_;
      return line;
    }
  }

 private:
  bool Read() {
    const int64_t left = std::max<int64_t>(0, end_ - next_);
    piece_.resize(std::min(kPieceBytes, static_cast<size_t>(left)));
    ssize_t got = 0;
    do {
      got = pread(file_, piece_.data(), piece_.size(), next_);
    } while (got < 0 && errno == EINTR);
    piece_.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    used_ = 0;
    next_ += std::ssize(piece_);
    return !piece_.empty();
  }

  const int file_;
  int64_t next_;
  const int64_t end_;
  std::string piece_;
  size_t used_ = 0;
};

// Returns why the line is left out; empty: it is not.
std::string TakeLine(const LineReader::Line& line,
                     const std::function<void(const nlohmann::ordered_json& line)>& take) {
  if (line.is_long) {
    return absl::StrCat("holds more than ", kMostJsonBytes,
                        " bytes, the most that is read of a line");
  }
  const absl::StatusOr<nlohmann::ordered_json> json = ParseOrderedJson(line.text);
  if (!json.ok()) return std::string(json.status().message());
  if (!json->is_object()) return "found no JSON object, expected one";
  take(*json);
  return "";
}

void LeaveOut(const std::string& what, LinesLeftOut* left_out) {
  if (++left_out->count == 1) left_out->first = what;
}

}  // namespace

std::string LinesLeftOut::Text() const {
  if (count == 0) return "";
  return absl::StrCat(count, count == 1 ? " line is" : " lines are", " left out: ", first);
}

LinesLeftOut ForEachJsonLine(const std::string& path, const JsonLinesSpan& span,
                             const std::function<void(const nlohmann::ordered_json& line)>& take) {
  // Opening a pipe must not wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int error = file < 0 ? errno : 0;
  return ForEachJsonLine(OpenedLines{path, file, error, std::strerror(error)}, span, take);
}

LinesLeftOut ForEachJsonLine(const OpenedLines& opened, const JsonLinesSpan& span,
                             const std::function<void(const nlohmann::ordered_json& line)>& take) {
  LinesLeftOut left_out;
  const std::string& path = opened.path;
  const int file = opened.descriptor;
  struct stat info = {};
  if (file < 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    const bool is_none = file < 0 && (opened.error == ENOENT || opened.error == ENOTDIR);
    const std::string why = file < 0 ? opened.why : "is no regular file";
    if (!is_none) LeaveOut(absl::StrCat(path, ": ", why), &left_out);
    if (file >= 0) close(file);
    return left_out;
  }
  const int64_t from = std::max(span.from_byte, info.st_size - span.most_bytes);
  // Whoever begins amid the file begins amid a line, too, unless the byte before is an end.
  const bool is_cut = from > span.from_byte;
  LineReader reader(file, is_cut ? from - 1 : from, info.st_size);
  bool is_first_cut = is_cut, has_lines = false;
  while (const std::optional<LineReader::Line> line = reader.Next()) {
    const bool is_rest = std::exchange(is_first_cut, false) && !line->is_long;
    has_lines = has_lines || !is_rest;
    if (is_rest || absl::StripAsciiWhitespace(line->text).empty()) continue;
    const std::string why = TakeLine(*line, take);
    if (why.empty()) continue;
    LeaveOut(absl::StrCat(path, ": line at byte ", line->at_byte, ": ", why), &left_out);
  }
  if (is_cut && !has_lines) {
    LeaveOut(absl::StrCat(path, ": has no whole line in its last ", span.most_bytes, " bytes"),
             &left_out);
  }
  close(file);
  return left_out;
}

}  // namespace weft
