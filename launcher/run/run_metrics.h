// RunMetrics is what one run has put into the metrics.jsonl of its folder, among the lines of the
// runs before it, also where the file became the older one meanwhile (process/older_file.h). One
// thread.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

class RunMetrics {
 public:
  using Take = std::function<void(const nlohmann::ordered_json& line)>;

  // The run's lines begin where the file ends now; it need not be there.
  explicit RunMetrics(std::string path);
  ~RunMetrics();
  RunMetrics(const RunMetrics&) = delete;
  RunMetrics& operator=(const RunMetrics&) = delete;

  // Calls `take` for each line of the run that is left, in order. Returns whether the first ones
  // may be gone, or are too many to be read (text/json_lines.h).
  bool ForEachLine(const Take& take) const;

 private:
  bool IsMarked(int file) const;

  const std::string path_;
  int file_;  // held open, so that no other file is taken for it; -1: there was none
  int64_t from_byte_ = 0;
};

}  // namespace weft
