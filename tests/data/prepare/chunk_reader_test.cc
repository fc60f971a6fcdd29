#include "data/prepare/chunk_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/data/prepare/small_tokenizer.h"

namespace weft {
namespace {

using testing::HasSubstr;

struct ReadChunks {
  std::vector<TextChunk> chunks;
  absl::Status status;
};

ReadChunks ReadAll(const std::vector<TextInput>& inputs, const TextPosition& begin,
                   const ChunkOptions& options) {
  ReadChunks read;
  ChunkReader reader(inputs, begin, options);
  while (true) {
    auto next = reader.Next();
    read.status = next.status();
    if (!next.ok() || !*next) return read;
    read.chunks.push_back(**std::move(next));
  }
}

std::string Joined(const std::vector<TextChunk>& chunks) {
  std::string all;
  for (const TextChunk& chunk : chunks) all += chunk.bytes;
  return all;
}

TEST(ChunkReader, CutsRowsAndCountsLines) {
  const TextFolder folder;
  const std::string text = RowsForTest(50, 1);
  const auto read = ReadAll({{folder.Write("a.jsonl", text)}}, {}, {.chunk_bytes = 700});
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(Joined(read.chunks), text);
  EXPECT_GT(read.chunks.size(), 5u);
  int64_t line = 1;
  for (const TextChunk& chunk : read.chunks) {
    EXPECT_EQ(chunk.first_line, line);
    EXPECT_EQ(chunk.bytes.back(), '\n');
    line += std::count(chunk.bytes.begin(), chunk.bytes.end(), '\n');
  }
  EXPECT_EQ(line, 51);
}

// Whichever chunk a reader starts behind, it goes on as the first one did: of each packing, of
// rows, of lines, of paragraphs and of parts.
TEST(ChunkReader, GoesOnBehindAnyChunk) {
  const TextFolder folder;
  const std::string rows = RowsForTest(40, 2), more = RowsForTest(30, 3);
  std::string prose;
  for (int i = 0; i < 300; ++i) prose += absl::StrCat("Line ", i, ".\n", i % 7 == 0 ? "\n" : "");
  const std::vector<std::vector<TextInput>> cases = {
      {{folder.Write("a.jsonl", rows)}, {folder.Write("b.jsonl.gz", Gzipped(more))}},
      {{folder.Write("c.jsonl.zst", Zstandard(rows) + Zstandard(more))}},
      {{folder.Write("d.jsonl.gz", Gzipped(rows) + Gzipped(more))}},
      {{folder.Write("e.txt", "\xEF\xBB\xBF" + prose), TextFormat::kText},
       {folder.Write("f.txt.gz", Gzipped(prose)), TextFormat::kText}},
  };
  for (const auto& inputs : cases) {
    for (const DocumentCut cut :
         {DocumentCut::kLine, DocumentCut::kParagraph, DocumentCut::kFile}) {
      const ChunkOptions options = {.cut = cut, .chunk_bytes = 400};
      const auto all = ReadAll(inputs, {}, options);
      ASSERT_TRUE(all.status.ok()) << all.status;
      for (size_t i = 0; i < all.chunks.size(); ++i) {
        const auto rest = ReadAll(inputs, all.chunks[i].after, options);
        ASSERT_TRUE(rest.status.ok()) << rest.status;
        ASSERT_EQ(rest.chunks.size(), all.chunks.size() - i - 1);
        for (size_t j = 0; j < rest.chunks.size(); ++j) {
          const TextChunk& a = rest.chunks[j];
          const TextChunk& b = all.chunks[i + 1 + j];
          ASSERT_TRUE(a.bytes == b.bytes && a.first_line == b.first_line && a.after == b.after &&
                      a.begins == b.begins && a.ends == b.ends)
              << inputs[0].path << " chunk " << i << " + " << j;
        }
      }
    }
  }
}

TEST(ChunkReader, CutsALongTextIntoParts) {
  const TextFolder folder;
  std::string prose;
  while (prose.size() < (size_t{5} << 19)) prose += "A line of text, as they are.\n";
  const std::vector<TextInput> inputs = {{folder.Write("a.txt", prose), TextFormat::kText}};
  const auto all = ReadAll(inputs, {}, {});
  ASSERT_EQ(all.chunks.size(), 3u);
  EXPECT_EQ(Joined(all.chunks), prose);
  EXPECT_TRUE(all.chunks[0].begins && !all.chunks[0].ends);
  EXPECT_TRUE(!all.chunks[1].begins && !all.chunks[1].ends);
  EXPECT_TRUE(!all.chunks[2].begins && all.chunks[2].ends);
  const auto rest = ReadAll(inputs, all.chunks[0].after, {});
  ASSERT_EQ(rest.chunks.size(), 2u);
  EXPECT_FALSE(rest.chunks[0].begins);
  EXPECT_EQ(rest.chunks[0].bytes, all.chunks[1].bytes);
}

TEST(ChunkReader, LeavesOutAMarkOfByteOrderAndEmptyFiles) {
  const TextFolder folder;
  const auto read = ReadAll({{folder.Write("a.jsonl", "")},
                             {folder.Write("b.jsonl", "\xEF\xBB\xBF{}\n")},
                             {folder.Write("c.jsonl", "\xEF\xBB\xBF")},
                             {folder.Write("d.jsonl", "{}")}},
                            {}, {});
  ASSERT_TRUE(read.status.ok()) << read.status;
  ASSERT_EQ(read.chunks.size(), 2u);
  EXPECT_EQ(read.chunks[0].bytes, "{}\n");
  EXPECT_EQ(read.chunks[1].bytes, "{}");
  EXPECT_EQ(read.chunks[1].input, 3);
}

TEST(ChunkReader, PassesOverARowThatIsTooLong) {
  const TextFolder folder;
  std::string text = "{}\n";
  text.append(size_t{kMostRowBytes} + 10, 'x');
  text += "\n{\"a\": 1}\n";
  const auto read = ReadAll({{folder.Write("a.jsonl.zst", Zstandard(text))}}, {}, {});
  ASSERT_TRUE(read.status.ok()) << read.status;
  ASSERT_EQ(read.chunks.size(), 3u);
  EXPECT_TRUE(read.chunks[1].is_too_long);
  EXPECT_EQ(read.chunks[1].first_line, 2);
  EXPECT_EQ(read.chunks[2].first_line, 3);
  EXPECT_EQ(read.chunks[2].bytes, "{\"a\": 1}\n");
}

TEST(ChunkReader, SaysWhereAPackedFileIsDamaged) {
  const TextFolder folder;
  const std::string rows = RowsForTest(400, 4);
  for (const auto& [name, packed] :
       {std::pair("a.jsonl.gz", Gzipped(rows)), std::pair("a.jsonl.zst", Zstandard(rows))}) {
    for (const size_t size : {packed.size() / 2, packed.size() - 1}) {
      const auto cut = ReadAll({{folder.Write(name, packed.substr(0, size))}}, {}, {});
      EXPECT_TRUE(absl::IsDataLoss(cut.status)) << cut.status;
      EXPECT_THAT(std::string(cut.status.message()), HasSubstr("ends within a"));
    }
    std::string flipped = packed;
    flipped[packed.size() / 2] = static_cast<char>(flipped[packed.size() / 2] ^ 0x55);
    EXPECT_TRUE(absl::IsDataLoss(ReadAll({{folder.Write(name, flipped)}}, {}, {}).status)) << name;
    const auto behind = ReadAll({{folder.Write(name, packed + "garbage")}}, {}, {});
    EXPECT_TRUE(absl::IsDataLoss(behind.status)) << name << behind.status;
  }
}

TEST(ChunkReader, RefusesAPackedFileThatHasChanged) {
  const TextFolder folder;
  const std::string rows = RowsForTest(40, 5);
  const std::vector<TextInput> inputs = {{folder.Write("a.jsonl.gz", Gzipped(rows))}};
  const auto all = ReadAll(inputs, {}, {.chunk_bytes = 500});
  std::string other = rows;
  other[10] = other[10] == '1' ? '2' : '1';
  folder.Write("a.jsonl.gz", Gzipped(other));
  const auto rest = ReadAll(inputs, all.chunks[3].after, {.chunk_bytes = 500});
  EXPECT_TRUE(absl::IsFailedPrecondition(rest.status)) << rest.status;
}

}  // namespace
}  // namespace weft
