#include "launcher/slurm/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Nodes(const std::string& text) {
  const auto nodes = ExpandNodeList(text);
  EXPECT_TRUE(nodes.ok()) << nodes.status();
  return nodes.value_or(std::vector<std::string>());
}

TEST(NodeList, ReadsAllFormsOfSlurm) {
  EXPECT_THAT(Nodes("n1"), ElementsAre("n1"));
  EXPECT_THAT(Nodes("n1,login"), ElementsAre("n1", "login"));
  EXPECT_THAT(Nodes("n[1-3,7]"), ElementsAre("n1", "n2", "n3", "n7"));
  EXPECT_THAT(Nodes("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(Nodes("r[1-2]n[01-02]"), ElementsAre("r1n01", "r1n02", "r2n01", "r2n02"));
  EXPECT_THAT(Nodes("a[1]-ib,b2,c[3-4]x"), ElementsAre("a1-ib", "b2", "c3x", "c4x"));
}

TEST(NodeList, RefusesWhatSlurmDoesNotWrite) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a name is empty"},
      {"n1,,n2", "a name is empty"},
      {"n[1-3", "a bracket stays open"},
      {"n1]", "never opened"},
      {"n[a,b]", "\"a\" is no range"},
      {"n[3-1]", "3-1 runs backwards"},
      {"n[]", "\"\" is no range"},
      {"n[1-999999]", "is too long"},
      {"n[1-9999]x[1-9999]", "has more than 100000 nodes"},
  };
  for (const auto& [text, why] : cases) {
    const auto nodes = ExpandNodeList(text);
    ASSERT_EQ(nodes.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(nodes.status().message()), HasSubstr(why)) << text;
  }
}

TEST(NodeList, ReadsNumbersOfNodes) {
  EXPECT_THAT(*ExpandCounts("4"), ElementsAre(4));
  EXPECT_THAT(*ExpandCounts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  for (const char* text : {"", "x", "2(x", "2(x3", "-1", "2(x999999999)"}) {
    EXPECT_FALSE(ExpandCounts(text).ok()) << text;
  }
}

}  // namespace
}  // namespace weft
