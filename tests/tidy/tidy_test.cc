// Reads the tree and holds it against the rules of rules.h and page_rules.h; rules_test.cc and
// page_rules_test.cc show that each bites.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/places.h"
#include "tests/tidy/page_rules.h"
#include "tests/tidy/rules.h"

namespace weft {
namespace {

std::string Read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool IsSkipped(const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  return name[0] == '.' || name == "outputs" || name == "__pycache__" || name == "shared" ||
         name.rfind("build", 0) == 0;
}

// Files of the tree whose name or extension is one of `endings`, sorted by path.
std::vector<SourceFile> Files(const std::set<std::string>& endings) {
  const std::filesystem::path root = SourcePath();
  std::vector<SourceFile> files;
  auto entry = std::filesystem::recursive_directory_iterator(root);
  for (; entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    const std::filesystem::path& path = entry->path();
    if (entry->is_directory() && IsSkipped(path)) entry.disable_recursion_pending();
    if (!entry->is_regular_file()) continue;
    if (endings.count(path.extension()) + endings.count(path.filename()) == 0) continue;
    files.push_back({std::filesystem::relative(path, root).string(), Read(path)});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

const std::vector<SourceFile>& Sources() {
  static const auto* sources =
      new std::vector<SourceFile>(Files({".h", ".cc", ".cu", ".cuh", ".cpp", ".hpp", ".c"}));
  return *sources;
}

void ExpectNone(const Violations& violations) {
  for (const std::string& violation : violations) ADD_FAILURE() << violation;
}

void ExpectNoneOfEach(Violations (*rule)(const SourceFile&)) {
  for (const SourceFile& file : Sources()) ExpectNone(rule(file));
}

TEST(Tree, IsFound) {
  ASSERT_GT(Sources().size(), 20u);
  EXPECT_EQ(std::count_if(Sources().begin(), Sources().end(),
                          [](const SourceFile& file) { return file.path == "plan/spec/layout.h"; }),
            1);
}

TEST(Tree, IncludesPointInTheAllowedDirectionOnly) {
  ExpectNoneOfEach(IncludeViolations);
}

TEST(Tree, FilesAndFunctionsKeepTheirSize) {
  ExpectNoneOfEach(SizeViolations);
}

TEST(Tree, NoConceptIsTooSmallToStandAlone) {
  ExpectNone(SmallConceptViolations(Sources()));
}

TEST(Tree, ClassesKeepTheirSize) {
  ExpectNone(ClassViolations(Sources()));
}

TEST(Tree, HasNoCircles) {
  ExpectNone(CircleViolations(Sources()));
}

TEST(Tree, OneNameIsOneType) {
  ExpectNone(DoubleTypeViolations(Sources()));
}

TEST(Tree, ReadsJsonInOnePlace) {
  ExpectNoneOfEach(JsonViolations);
}

TEST(Tree, NamesSayWhatIsInside) {
  ExpectNoneOfEach(NameViolations);
}

TEST(Tree, HeadersOpenWithProseAndLinesAreClean) {
  ExpectNoneOfEach(ShapeViolations);
}

TEST(Tree, CommentsOpenWithASubjectAndAVerb) {
  ExpectNoneOfEach(CommentViolations);
  for (const SourceFile& file : Files({".proto"})) ExpectNone(CommentViolations(file));
}

TEST(Tree, CMakeNamesItsSources) {
  const std::vector<SourceFile> files = Files({"CMakeLists.txt", ".cmake"});
  ASSERT_GT(files.size(), 10u);
  for (const SourceFile& file : files) ExpectNone(CMakeViolations(file));
}

TEST(Tree, PagesHaveShortLinesAndLinksAndPathsThatLead) {
  const std::vector<SourceFile> pages = Files({".md"});
  ASSERT_GT(pages.size(), 10u);
  for (const SourceFile& page : pages) ExpectNone(PageViolations(page));
  const auto exists = [](const std::string& path) {
    return std::filesystem::exists(SourcePath("/") + path);
  };
  ExpectNone(LinkViolations(pages, exists));
  for (const SourceFile& page : pages) ExpectNone(PathViolations(page, exists));
}

// Output of a command and its wait status.
std::pair<std::string, int> RunCommand(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  while (pipe && fgets(buffer, sizeof buffer, pipe)) output += buffer;
  return {output, pipe ? pclose(pipe) : -1};
}

TEST(Tree, IsInClangFormat14Shape) {
  if (RunCommand("clang-format-14 --version").second != 0) {
    GTEST_SKIP() << "clang-format-14 is not installed";
  }
  std::string command = "cd '" + SourcePath() + "' && clang-format-14 --dry-run -Werror";
  for (const SourceFile& file : Sources()) command += " '" + file.path + "'";
  const auto [output, status] = RunCommand(command);
  EXPECT_EQ(status, 0) << output.substr(0, 4000);
}

}  // namespace
}  // namespace weft
