#include "data/prepare/text_cuts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "data/prepare/text_kind.h"

namespace weft {
namespace {

TEST(TextCuts, EndWithTheLastLine) {
  EXPECT_EQ(EndOfLastLine("a\nb\nc"), 4u);
  EXPECT_EQ(EndOfLastLine("abc"), 0u);
  EXPECT_EQ(EndOfLastLine("abc\n"), 4u);
}

TEST(TextCuts, EndWithTheLastParagraphThatIsOver) {
  EXPECT_EQ(EndOfLastParagraph("a\n\nb"), 3u);
  EXPECT_EQ(EndOfLastParagraph("a\r\n\r\nb"), 5u);
  EXPECT_EQ(EndOfLastParagraph("a\n\n\n\nb\nc"), 5u);
  // The next byte may be an empty line more, or the rest of a line.
  EXPECT_EQ(EndOfLastParagraph("a\n\n"), 0u);
  EXPECT_EQ(EndOfLastParagraph("a\nb\nc"), 0u);
}

TEST(TextCuts, EndAPartBeforeALetterBehindWhatIsNoSpace) {
  EXPECT_EQ(EndOfLastPart("a.\nb"), 3u);
  EXPECT_EQ(EndOfLastPart("a\nb\n c\n9\n\nd\n"), 2u);
  EXPECT_EQ(EndOfLastPart("a \nb"), 0u);   // the space and the end of line are one word of GPT-2
  EXPECT_EQ(EndOfLastPart("a!\n/b"), 0u);  // o200k takes the slash with them
  EXPECT_EQ(EndOfLastPart("\nb"), 0u);
  EXPECT_EQ(EndOfLastPart("日本。\n日本"), 10u);
  EXPECT_EQ(EndOfLastPart("a\u00A0\nb"), 0u);
  EXPECT_EQ(EndOfLastPart("a\n\u0301b"), 0u);  // a mark belongs to what is before it
}

TEST(TextCuts, CutNoCharacter) {
  EXPECT_EQ(CutAnywhere("ab\xE6\x97"), 2u);
  EXPECT_EQ(CutAnywhere("ab"), 2u);
  EXPECT_EQ(CutAnywhere("\xE6"), 1u);
}

std::vector<size_t> PartsOf(const std::string& text) {
  std::vector<size_t> parts;
  const absl::Status status = ForEachPart(text, [&](absl::string_view part) {
    parts.push_back(part.size());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  return parts;
}

TEST(TextCuts, MakePartsOfALongTextOnly) {
  EXPECT_EQ(PartsOf(std::string(kPartBytes, 'a')), std::vector<size_t>{kPartBytes});
  std::string lines;
  while (lines.size() < 3 * kPartBytes) lines += "a line of text\n";
  const std::vector<size_t> parts = PartsOf(lines);
  ASSERT_GE(parts.size(), 3u);
  for (const size_t part : parts) EXPECT_LE(part, kPartBytes + 1);
  // One line: cut where it must be.
  const std::vector<size_t> most = PartsOf(std::string(kMostPartBytes + kPartBytes + 5, 'a'));
  EXPECT_EQ(most, (std::vector<size_t>{kMostPartBytes, kPartBytes + 5}));
}

TEST(TextKind, IsToldByName) {
  EXPECT_EQ(*FormatOfName("a/b.jsonl"), TextFormat::kJsonl);
  EXPECT_EQ(*FormatOfName("b.JSONL.gz"), TextFormat::kJsonl);
  EXPECT_EQ(*FormatOfName("b.txt.zst"), TextFormat::kText);
  EXPECT_EQ(*FormatOfName("README.md"), TextFormat::kText);
}

TEST(TextKind, RefusesOthersByNameWithACure) {
  const struct {
    const char* name;
    const char* says;
  } cases[] = {
      {"a.parquet", "is a Parquet file, expected text or JSON lines; write its rows"},
      {"a.arrow", "| weft data prepare -"},
      {"a.json", "is a JSON file"},
      {"a.csv.gz", "comma-separated"},
      {"a.jsonl.xz", "unpack it, or pack it with gzip or zstd"},
      {"a.bin", "name it in data.train"},
      {"a.dat", "expected one that ends with .jsonl, .ndjson, .txt, .text, .md, each also with"},
      {"a", "; rename it, or name its format with --format-of-all"},
  };
  for (const auto& c : cases) {
    const auto format = FormatOfName(c.name, "--format-of-all");
    EXPECT_EQ(FormatOfName(c.name).status().message().find("--"), absl::string_view::npos);
    ASSERT_TRUE(absl::IsInvalidArgument(format.status())) << c.name;
    EXPECT_NE(format.status().message().find(c.says), absl::string_view::npos)
        << c.name << ": " << format.status();
  }
}

TEST(TextKind, IsPackedAsItsFirstBytesSay) {
  EXPECT_EQ(*PackingOf("a.txt", "\x1F\x8B\x08"), Packing::kGzip);
  EXPECT_EQ(*PackingOf("a.zst", "\x28\xB5\x2F\xFD"), Packing::kZstd);
  EXPECT_EQ(*PackingOf("a.zst", "\x50\x2A\x4D\x18"), Packing::kZstd);
  EXPECT_EQ(*PackingOf("a.jsonl", "{\"text"), Packing::kNone);
  EXPECT_EQ(*PackingOf("a.gz", ""), Packing::kNone);
  for (const auto& [name, bytes] : {std::pair("a.gz", "{\"text"), std::pair("a.txt", "PAR1"),
                                    std::pair("a.txt",
                                              "\xFF\xFE"
                                              "a"),
                                    std::pair("a.md", "BZh9")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(PackingOf(name, bytes).status())) << name;
  }
}

}  // namespace
}  // namespace weft
