// How far the tokenising of texts is, on stderr: one line that is written over on a terminal, else
// a line now and then. One thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "data/prepare/prepare.h"

namespace weft {

class PrepareProgressLine {
 public:
  PrepareProgressLine();
  void Show(const PrepareProgress& now);
  // Takes the line off the terminal, before anything else is printed.
  void End();

 private:
  std::string Text(const PrepareProgress& now) const;

  const bool is_terminal_;
  std::chrono::steady_clock::time_point begin_, shown_;
  std::optional<int64_t> first_stored_;
  bool is_open_ = false;
};

// Returns what shows each progress in such a line.
std::function<void(const PrepareProgress&)> ShowPrepareProgress();

}  // namespace weft
