// Lines are read wherever they can be, and whoever reads them is told of those that are left out.
#include "text/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "text/json.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JsonLines : public testing::Test {
 protected:
  JsonLines()
      : path_(absl::StrCat(testing::TempDir(), "/lines-",
                           testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path_);
  }
  ~JsonLines() override { std::filesystem::remove_all(path_); }

  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  // "n" of each line that is taken.
  std::vector<int> Numbers(const JsonLinesSpan& span = {}) {
    std::vector<int> numbers;
    left_out_ = ForEachJsonLine(path_, span, [&numbers](const nlohmann::ordered_json& line) {
      numbers.push_back(line.value("n", -1));
    });
    return numbers;
  }

  const std::string path_;
  LinesLeftOut left_out_;
};

TEST_F(JsonLines, ThatCannotBeReadAreLeftOutByName) {
  using namespace std::string_literals;
  Write("{\"n\": 1}\n\n" + std::string(400'000, '[') + "\n{\"n\": 2}\n{\"n\": \n[3]\n" +
        std::string(2'000'000, 'x') + "\n\0\0\0\n{\"n\": 4}\n"s);
  EXPECT_THAT(Numbers(), ElementsAre(1, 2, 4));
  EXPECT_EQ(left_out_.count, 5);
  EXPECT_EQ(left_out_.Text(),
            absl::StrCat("5 lines are left out: ", path_,
                         ": line at byte 10: line 1, byte 65: nested deeper than 64, the most that "
                         "is read of such a text"));
}

TEST_F(JsonLines, NeedNoEndOfTheLastOne) {
  Write("{\"n\": 1}\n{\"n\": 2}");
  EXPECT_THAT(Numbers(), ElementsAre(1, 2));
  EXPECT_EQ(left_out_.Text(), "");
  Write("{\"n\": 1}\n{\"n\": 2");
  EXPECT_THAT(Numbers(), ElementsAre(1));
  EXPECT_EQ(left_out_.count, 1);
}

TEST_F(JsonLines, OfALongFileAreItsNewest) {
  std::string text;
  for (int n = 10; n < 90; ++n) absl::StrAppend(&text, "{\"n\": ", n, "}\n");
  Write(text);
  EXPECT_THAT(Numbers({.most_bytes = 20}), ElementsAre(88, 89));
  EXPECT_THAT(Numbers({.most_bytes = 19}), ElementsAre(89));
  EXPECT_EQ(Numbers({.from_byte = 20}).front(), 12);
  EXPECT_THAT(Numbers({.from_byte = 1 << 20}), IsEmpty());
  EXPECT_EQ(left_out_.count, 0);
  EXPECT_THAT(Numbers({.most_bytes = 5}), IsEmpty());
  EXPECT_EQ(left_out_.first, path_ + ": has no whole line in its last 5 bytes");
}

// 10 GiB without a line's end, which take no room on the disk.
TEST_F(JsonLines, OfAHugeFileTakeNoMemory) {
  Write("");
  std::filesystem::resize_file(path_, int64_t{10} << 30);
  EXPECT_THAT(Numbers(), IsEmpty());
  EXPECT_EQ(left_out_.count, 1);
  EXPECT_THAT(left_out_.Text(), HasSubstr("holds more than 1048576 bytes"));
}

TEST_F(JsonLines, OfWhatIsNoFileAreNone) {
  EXPECT_THAT(Numbers(), IsEmpty());
  EXPECT_EQ(left_out_.Text(), "");
  std::filesystem::create_directory(path_);
  EXPECT_THAT(Numbers(), IsEmpty());
  EXPECT_EQ(left_out_.Text(), absl::StrCat("1 line is left out: ", path_, ": is no regular file"));
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Numbers(), IsEmpty());
  EXPECT_THAT(left_out_.Text(), HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace weft
