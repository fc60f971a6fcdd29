#include "data/documents.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAreArray;

constexpr int64_t kMark = 7;

struct Case {
  const char* name;
  std::vector<int32_t> tokens;
  std::vector<int32_t> after_eos, at_bos;  // where each token's document starts
};

std::vector<int32_t> DocumentStarts(const std::vector<int32_t>& tokens, std::optional<int64_t> bos,
                                    std::optional<int64_t> eos) {
  std::vector<int32_t> starts(tokens.size(), -1);
  FindDocumentStarts(tokens, bos, eos, absl::MakeSpan(starts));
  return starts;
}

TEST(DocumentStarts, FollowTheMarks) {
  const std::vector<Case> cases = {
      {"empty", {}, {}, {}},
      {"one token", {1}, {0}, {0}},
      {"no mark", {1, 2, 3}, {0, 0, 0}, {0, 0, 0}},
      {"begins within a document", {1, 2, 7, 3, 4}, {0, 0, 0, 3, 3}, {0, 0, 2, 2, 2}},
      {"begins and ends with the mark", {7, 1, 7}, {0, 1, 1}, {0, 0, 2}},
      {"empty documents", {1, 7, 7, 7, 2}, {0, 0, 2, 3, 4}, {0, 1, 2, 3, 3}},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(DocumentStarts(c.tokens, std::nullopt, kMark), ElementsAreArray(c.after_eos))
        << c.name;
    EXPECT_THAT(DocumentStarts(c.tokens, kMark, std::nullopt), ElementsAreArray(c.at_bos))
        << c.name;
    const std::vector<int32_t> one(c.tokens.size(), 0);
    EXPECT_THAT(DocumentStarts(c.tokens, std::nullopt, std::nullopt), ElementsAreArray(one));
  }
}

TEST(DocumentStarts, BothMarksMakeOneBorderWhereTheyMeet) {
  EXPECT_THAT(DocumentStarts({8, 1, 9, 8, 2, 9, 3}, /*bos=*/8, /*eos=*/9),
              ElementsAreArray({0, 0, 0, 3, 3, 3, 6}));
}

}  // namespace
}  // namespace weft
