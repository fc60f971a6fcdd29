// Each rule of page_rules.h against planted breaches, and against the nearest text that is allowed.
#include "tests/tidy/page_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Repeated(const std::string& line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

TEST(Pages, HaveLinesOfAtMost120Characters) {
  const std::string wide(120, 'x');
  EXPECT_THAT(PageViolations({"docs/a.md", wide + "\n" + Repeated("\xC3\xBC", 120) + "\n"}),
              IsEmpty());
  for (const std::string before : {"", "| ", "```\n"}) {
    EXPECT_THAT(PageViolations({"docs/a.md", before + wide + "x\n"}),
                ElementsAre(HasSubstr(": longer than 120 characters")));
  }
}

TEST(Pages, HaveParagraphsOfAtMostSixLines) {
  EXPECT_THAT(PageViolations({"docs/a.md", "# A\n\n" + Repeated("words\n", 7)}),
              ElementsAre(HasSubstr("docs/a.md:9: a paragraph of more than 6 lines")));
  EXPECT_THAT(PageViolations({"docs/a.md", "- words\n" + Repeated("  words\n", 6)}),
              ElementsAre(HasSubstr("docs/a.md:7: ")));
  for (const std::string line :
       {"- words\n  words\n", "1. words\n", "| a | b |\n", "    code\n", "words\n\n"}) {
    EXPECT_THAT(PageViolations({"docs/a.md", Repeated(line, 7)}), IsEmpty()) << line;
  }
  EXPECT_THAT(PageViolations({"docs/a.md", "```\n" + Repeated("code\n", 7) + "```\nwords\n"}),
              IsEmpty());
}

// Links of docs/a.md, in a tree of this page, docs/b.md and plan/plan.cc.
Violations LinksOf(const std::string& text) {
  const std::vector<SourceFile> pages = {{"docs/a.md", text},
                                         {"docs/b.md", "# B\n\n## ZeRO's places\n"}};
  return LinkViolations(pages, [](const std::string& path) {
    return path == "docs/a.md" || path == "docs/b.md" || path == "plan/plan.cc";
  });
}

TEST(Links, LeadToFilesThatAreThere) {
  EXPECT_THAT(LinksOf("[b](b.md), [c](../plan/plan.cc), [web](https://a.b/c)\n"), IsEmpty());
  EXPECT_THAT(LinksOf("words\n[b](b.md), [c](c.md)\n"),
              ElementsAre("docs/a.md:2: links to docs/c.md, which is not there"));
  EXPECT_THAT(LinksOf("```\n[c](c.md)\n```\n"), IsEmpty());
}

TEST(Links, LeadToHeadingsThatAreThere) {
  EXPECT_THAT(LinksOf("## Here it is\n\n[b](b.md#zeros-places), [a](#here-it-is)\n"), IsEmpty());
  EXPECT_THAT(LinksOf("[b](b.md#places)\n[a](#here)\n"),
              ElementsAre(HasSubstr("docs/a.md:1: links to b.md#places"),
                          HasSubstr("docs/a.md:2: links to #here")));
}

TEST(Paths, AreOfFilesThatAreThere) {
  const auto paths_of = [](const std::string& text) {
    return PathViolations({"docs/a.md", text}, [](const std::string& path) {
      return path == "plan/plan.cc" || path == "plan/plan.h";
    });
  };
  EXPECT_THAT(paths_of("`plan/plan.{h,cc}`, `plan/plan.h`, `plan/gone`, `step-5/gone.cc`\n"),
              IsEmpty());
  EXPECT_THAT(paths_of("words\n`plan/gone.cc`\n"),
              ElementsAre("docs/a.md:2: names plan/gone.cc, which is not there"));
  EXPECT_THAT(paths_of("`plan/plan.{h,cc}` and `plan/gone.{h,cc}`\n"),
              ElementsAre(HasSubstr("plan/gone.h"), HasSubstr("plan/gone.cc")));
  EXPECT_THAT(paths_of("```\n`plan/gone.cc`\n```\n"), IsEmpty());
}

}  // namespace
}  // namespace weft
