// Failure domains: hosts by name, pattern and number; what cannot be meant is refused.
#include "plan/spec/failure_domains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(FailureDomains, FindAHostByNamePatternAndNumber) {
  const FailureDomains domains = {
      {"rack1", "n[1-8,12], login1"}, {"rack2", "n[01-08]"}, {"zone", "gpu-*.b,x?,fd00::1"}};
  ASSERT_TRUE(CheckFailureDomains(domains).ok());
  struct Case {
    const char* host;
    const char* domain;
  };
  for (const Case& each : {Case{"n1", "rack1"},
                           {"n8", "rack1"},
                           {"n12", "rack1"},
                           {"login1", "rack1"},
                           {"n01", "rack2"},
                           {"n08", "rack2"},
                           {"gpu-7.b", "zone"},
                           {"gpu-.b", "zone"},
                           {"x9", "zone"},
                           {"fd00::1", "zone"}}) {
    const absl::StatusOr<std::string> found = DomainOf(domains, each.host);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, each.domain) << each.host;
  }
  for (const char* host : {"n9", "n0", "n001", "n", "n1x", "login12", "gpu-7.c", "x", "x10", ""}) {
    EXPECT_EQ(DomainOf(domains, host).status().code(), absl::StatusCode::kNotFound) << host;
  }
  EXPECT_EQ(DomainOf(domains, "n9").status().message(),
            "host n9 is in none of rack1, rack2, zone; name it in one of them");
}

TEST(FailureDomains, RefuseAHostOfTwo) {
  EXPECT_EQ(DomainOf({{"a", "n*"}, {"b", "n[1-2]"}}, "n1").status().message(),
            "host n1 is in a and b; name it in one of them");
}

TEST(FailureDomains, RefuseWhatCannotBeMeant) {
  const auto refusal = [](const std::string& domain, const std::string& hosts) {
    return std::string(CheckFailureDomains({{domain, hosts}}).message());
  };
  EXPECT_EQ(refusal("r", "n[1-"), "r: \"n[1-\" leaves [ open; write hosts as a,n[1-8,12],gpu*");
  EXPECT_THAT(refusal("r", "n[4-1]"), HasSubstr("[4-1] is no range"));
  EXPECT_THAT(refusal("r", "n[a]"), HasSubstr("[a] is no range"));
  EXPECT_THAT(refusal("r", "n[1234567890]"), HasSubstr("is no range"));
  EXPECT_THAT(refusal("r", "a,,b"), HasSubstr("names no host"));
  EXPECT_THAT(refusal("r", ""), HasSubstr("names no host"));
  EXPECT_THAT(refusal("r", "a b"), HasSubstr("names no host"));
  EXPECT_THAT(refusal("-r", "a"), HasSubstr("is no name of a domain"));
  EXPECT_EQ(refusal("r", "a"), "");
}

TEST(FailureDomains, NameAllHostsWhereNoneIsLeftOpen) {
  EXPECT_THAT(
      HostsNamedIn({{"r1", "n[08-10],a"}, {"r2", "b[1,3]c[1-2]"}}),
      ElementsAre(Pair("n08", "r1"), Pair("n09", "r1"), Pair("n10", "r1"), Pair("a", "r1"),
                  Pair("b1c1", "r2"), Pair("b1c2", "r2"), Pair("b3c1", "r2"), Pair("b3c2", "r2")));
  EXPECT_THAT(HostsNamedIn({{"r1", "a"}, {"r2", "n*"}}), IsEmpty());
  EXPECT_THAT(HostsNamedIn({{"r1", "n[1-999999999]"}}), IsEmpty()) << "too many";
}

// A pattern of many stars is no work.
TEST(FailureDomains, TakeNoTimeForHostilePatterns) {
  const std::string stars = [] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "*a";
    return text;
  }();
  EXPECT_FALSE(DomainOf({{"r", stars}}, std::string(150, 'a')).ok());
}

}  // namespace
}  // namespace weft
