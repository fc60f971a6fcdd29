// The real `weft`, run as a person would: for the tests of what it prints and of how it ends.
#pragma once
#include <string>

#include "tests/launcher/job_file_for_test.h"

namespace weft {

struct Ran {
  int exit_code = -1;  // 124: it was stopped after most_s
  std::string out;
  std::string err;
};

struct RunWeftOptions {
  std::string directory = {};  // where it is run; empty: in the folder
  std::string input = "/dev/null";
  std::string program = {};  // empty: the weft of this build
  std::string path = {};     // its PATH; empty: ours
  int most_s = 200;          // it only ends a test that has failed
};

// `weft <arguments>`, words as a shell takes them, with its state kept in `folder`.
Ran RunWeft(const JobFolder& folder, const std::string& arguments,
            const RunWeftOptions& options = {});

}  // namespace weft
