#include "plan/spec/checkpoint_folder.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(CheckpointFolder, LiesInTheRunFolderUnlessItIsAbsolute) {
  const struct {
    const char* folder;
    const char* expected;
  } cases[] = {
      {"checkpoint", "/runs/a/checkpoint"},
      {"./deep/checkpoint", "/runs/a/deep/checkpoint"},
      {"../checkpoints-of-a", "/runs/checkpoints-of-a"},
      {"/big/a", "/big/a"},
      {"/big/a//", "/big/a"},
      {"/../..", "/"},
      {"/big/../fast/a", "/fast/a"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(CheckpointFolder({.folder = c.folder}, "/runs/a"), c.expected) << c.folder;
  }
}

}  // namespace
}  // namespace weft
