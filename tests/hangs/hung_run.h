// Tests of hangs ask for their runs here, and read whom weftd names.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tests/end_to_end/tiny_run.h"

namespace weft {

// A Verdict is what weftd says of the culprit before it ends the generation.
struct Verdict {
  int rank = -1;
  std::string phase;
  std::string collective;
  double age_s = 0;
  double budget_s = 0;
  std::string line;
};

// None where nobody was named yet.
std::optional<Verdict> VerdictOf(const TinyRun& run);

// Fails the test where nobody is named in time.
Verdict AwaitVerdict(const TinyRun& run, double timeout_s);

// Words of weft run; steps and layout are written as in a job file.
std::vector<std::string> Arguments(const std::string& layout, const std::string& steps);

}  // namespace weft
