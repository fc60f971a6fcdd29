// Golden texts: what people read, compared letter by letter with a file of this folder. With
// UPDATE_GOLDEN=1 in the environment the file is written instead; look at the diff, then commit it.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/places.h"

namespace weft {

// Expects that `text` equals tests/golden/<name>.
inline void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = SourcePath("/tests/golden/") + name;
  const char* update = std::getenv("UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream out(path, std::ios::trunc);
    out << text;
    ASSERT_TRUE(out.flush()) << "cannot write " << path;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in) << path << " is missing; run this test once with UPDATE_GOLDEN=1";
  std::stringstream content;
  content << in.rdbuf();
  EXPECT_EQ(content.str(), text) << "differs from " << path
                                 << "; if the change is meant, run with UPDATE_GOLDEN=1";
}

}  // namespace weft
