#include "launcher/run/run_metrics.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "launcher/run/run_folder.h"
#include "process/older_file.h"
#include "text/json_lines.h"

namespace weft {
namespace {

struct stat FactsOf(int file) {
  struct stat facts = {};
  if (file < 0 || fstat(file, &facts) != 0) return {};
  return facts;
}

// Returns whether its first lines are left out.
bool ReadLinesFrom(const OpenedLines& lines, int64_t from_byte, const RunMetrics::Take& take) {
  const int64_t bytes = FactsOf(lines.descriptor).st_size - from_byte;
  ForEachJsonLine(lines, {.from_byte = from_byte}, take);
  return bytes > kMostJsonLinesBytes;
}

}  // namespace

RunMetrics::RunMetrics(std::string path)
    : path_(std::move(path)), file_(LinesOfRun(path_).descriptor) {
  from_byte_ = FactsOf(file_).st_size;
}

RunMetrics::~RunMetrics() {
  if (file_ >= 0) close(file_);
}

bool RunMetrics::IsMarked(int file) const {
  const struct stat mine = FactsOf(file_);
  const struct stat other = FactsOf(file);
  return file_ >= 0 && file >= 0 && mine.st_ino == other.st_ino && mine.st_dev == other.st_dev;
}

bool RunMetrics::ForEachLine(const Take& take) const {
  const OpenedLines newest = LinesOfRun(path_);
  if (IsMarked(newest.descriptor)) return ReadLinesFrom(newest, from_byte_, take);
  const OpenedLines older = LinesOfRun(OlderFileOf(path_));
  bool is_cut = older.descriptor >= 0 && !IsMarked(older.descriptor);
  is_cut |= ReadLinesFrom(older, IsMarked(older.descriptor) ? from_byte_ : 0, take);
  return ReadLinesFrom(newest, 0, take) || is_cut;
}

}  // namespace weft
