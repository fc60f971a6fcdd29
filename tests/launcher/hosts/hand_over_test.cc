#include "launcher/hosts/hand_over.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace weft {
namespace {

HandOver Full() {
  return {.bundle = "-----BEGIN\n",
          .env = {{"EMPTY", ""}, {"LINES", "a\nenv X 1\nb"}, {"SPACES", "a b"}},
          .version = "0.1.0 (abc)",
          .run_folder = "/runs/a b",
          .token = "0123",
          .network = "10.78.0.0/24"};
}

// A pipe whose other end says `text`; `open` keeps that end open, as a lifeline is.
struct Said {
  Said(const std::string& text, bool open) {
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    if (!open) {
      close(ends[1]);
      ends[1] = -1;
    }
  }
  ~Said() {
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
  }
  int ends[2] = {-1, -1};
};

TEST(HandOver, ComesAsItWasGiven) {
  EXPECT_EQ(ParseHandOver(HandOverText(Full())).value(), Full());
  EXPECT_EQ(ParseHandOver(HandOverText({})).value(), HandOver());
}

TEST(HandOver, LeavesWhatFollowsInTheStream) {
  const Said said(HandOverText(Full()) + "x", true);
  EXPECT_EQ(ReadHandOver(said.ends[0], 1000).value(), Full());
  char byte = 0;
  EXPECT_EQ(read(said.ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(HandOver, IsRefusedWhereItIsCutAnywhere) {
  const std::string whole = HandOverText(Full());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(ParseHandOver(whole.substr(0, bytes)).ok()) << bytes;
    const Said said(whole.substr(0, bytes), false);
    EXPECT_EQ(ReadHandOver(said.ends[0], 1000).status().code(), absl::StatusCode::kUnavailable)
        << bytes;
  }
}

TEST(HandOver, IsRefusedWhereItIsNone) {
  for (const char* text :
       {"hello\n", "weft-hand-over 2 0\n", "weft-hand-over 1 x\n", "weft-hand-over 1 -1\n",
        "weft-hand-over 1 99999999\n", "weft-hand-over 1 9\nenv A 99\n"}) {
    const Said said(text, true);
    EXPECT_EQ(ReadHandOver(said.ends[0], 1000).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  const Said endless(std::string(1000, 'x'), true);
  EXPECT_EQ(ReadHandOver(endless.ends[0], 1000).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HandOver, IsNotWaitedForForEver) {
  const Said said("weft-hand", true);
  EXPECT_EQ(ReadHandOver(said.ends[0], 20).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weft
