// ReadFirstCause finds what ended a group of workers first, from the last words of mpirun or
// weft-ranks and from its exit status. Pure.
#pragma once
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

struct FirstCause {
  int rank = -1;  // -1: not known
  std::string host;
  int signal = 0;
  int exit_code = 0;
  std::string message;  // "rank 1 on vm: killed by signal 9 (Killed)"
  std::string hint;     // what the numbers do not say; may be empty
};

// `output`: what it wrote; `wait_status`: how it ended, as wait(2) says; `host`: this machine.
FirstCause ReadFirstCause(absl::string_view output, int wait_status, absl::string_view host);

// The last `lines` lines of a text, at most `bytes` of it.
std::string LastLines(absl::string_view text, int lines, size_t bytes);

}  // namespace weft
