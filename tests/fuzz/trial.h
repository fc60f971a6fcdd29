// Trial: one call of the real `weft` on damaged input, in a folder of its own and within limits,
// and what has to hold of any answer: no signal, no failed CHECK, a documented exit code, in time,
// words that a terminal can show. A campaign is many of them, each made of (seed, number) alone.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/mutation.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {

// A call to make. Files are written into the folder first; it is the working directory.
struct Trial {
  struct File {
    std::string name;
    std::string text;
  };
  std::vector<File> files = {};
  std::vector<std::string> arguments = {};
  std::set<int> exit_codes = {0, 1, 2, 3, 75, 130};
  bool shows_text = true;  // on stdout; false: a model's bytes
};

struct Answer {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Makes the call and fails the test, with `name` and all that is needed to repeat it, where the
// answer is not one.
Answer Answered(const JobFolder& folder, const Trial& trial, const std::string& name);

// Runs `trial_of` for case 0, 1, ... with a Random of its own for each. WEFT_FUZZ_SEED names
// another sequence, WEFT_FUZZ_FACTOR multiplies how many there are, WEFT_FUZZ_CASE repeats one of
// them. Stops after 5 failures.
void Campaign(const std::string& kind, int cases,
              const std::function<void(Random& random, const std::string& name)>& trial_of);

}  // namespace weft
