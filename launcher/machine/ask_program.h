// AskProgram runs another program to its end and returns what it has said: sbatch, kubectl, flux.
// Each call has a deadline: what asks a controller that is down waits for minutes.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

struct ProgramAnswer {
  int exit_code = 0;  // 128 and the signal of one that was killed
  std::string out;
  std::string err;
};

// Runs the program with `input` as its standard input, whatever it answers. NotFound if it is not
// in PATH; DeadlineExceeded if it has not ended after `timeout_ms`, and then it is killed; Internal
// if this process reaps its children elsewhere, as an agent does: how it ended is not known then.
absl::StatusOr<ProgramAnswer> AskProgram(const std::vector<std::string>& argv,
                                         const std::string& input, int timeout_ms);

// Returns the last line of what a program has said that is not blank, without the blanks around it;
// empty: it said nothing. It is where programs say why they end.
std::string LastLine(absl::string_view words);

}  // namespace weft
