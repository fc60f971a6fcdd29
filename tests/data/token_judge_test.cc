#include "data/token_judge.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kLlama3Vocabulary = 128256;
constexpr int64_t kGpt2Vocabulary = 50257;

// As ids of a text: most are small, any may come.
std::vector<int64_t> Ids(int64_t vocab_size, size_t count = 20000) {
  std::mt19937_64 random(7);
  std::vector<int64_t> ids(count);
  for (int64_t& id : ids) {
    const double share = std::uniform_real_distribution<double>()(random);
    id = static_cast<int64_t>(share * share * static_cast<double>(vocab_size));
  }
  return ids;
}

template <typename T>
std::string As(const std::vector<int64_t>& ids) {
  std::string bytes;
  for (const int64_t id : ids) {
    const T value = static_cast<T>(id);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

absl::Span<const uint8_t> SpanOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string Turned(std::string bytes, size_t width) {
  for (size_t i = 0; i + width <= bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
  return bytes;
}

TEST(TokenJudge, TakesIdsOfTheWidthThatIsSaid) {
  for (const int64_t vocab_size : {int64_t{2}, int64_t{65}, kGpt2Vocabulary, int64_t{65536}}) {
    const auto ids = Ids(vocab_size);
    EXPECT_THAT(WhyNotIds(SpanOf(As<uint16_t>(ids)), 2, vocab_size), IsEmpty()) << vocab_size;
    EXPECT_THAT(WhyNotIds(SpanOf(As<uint32_t>(ids)), 4, vocab_size), IsEmpty()) << vocab_size;
  }
  const auto ids = Ids(kLlama3Vocabulary);
  EXPECT_THAT(WhyNotIds(SpanOf(As<uint32_t>(ids)), 4, kLlama3Vocabulary), IsEmpty());
  // All below 65,536, as whoever says uint16 knows.
  EXPECT_THAT(WhyNotIds(SpanOf(As<uint16_t>(Ids(kGpt2Vocabulary))), 2, kLlama3Vocabulary),
              IsEmpty());
  for (const size_t padded : {size_t{1}, size_t{3}, size_t{4000}}) {
    std::string zeros = As<uint16_t>(Ids(kGpt2Vocabulary, 9000));
    zeros.replace(zeros.size() - padded * 2, padded * 2, padded * 2, '\0');
    EXPECT_THAT(WhyNotIds(SpanOf(zeros), 2, kGpt2Vocabulary), IsEmpty());
  }
  EXPECT_THAT(WhyNotIds(SpanOf(std::string(4096, '\0')), 2, kGpt2Vocabulary), IsEmpty());
}

TEST(TokenJudge, KnowsNumbersOfAnotherWidth) {
  for (const int64_t vocab_size : {int64_t{65}, kGpt2Vocabulary, kLlama3Vocabulary}) {
    SCOPED_TRACE(vocab_size);
    const auto ids = Ids(vocab_size);
    EXPECT_THAT(WhyNotIds(SpanOf(As<uint32_t>(ids)), 2, vocab_size),
                HasSubstr("as in a file of 32-bit ids, but it would be read as uint16; set "
                          "data.dtype to uint32"));
    for (const int64_t width : {2, 4}) {
      EXPECT_THAT(WhyNotIds(SpanOf(As<int64_t>(ids)), width, vocab_size),
                  HasSubstr("as in a file of 64-bit ids"));
    }
    if (vocab_size <= 65536) {
      EXPECT_THAT(WhyNotIds(SpanOf(Turned(As<uint32_t>(ids), 4)), 2, vocab_size),
                  HasSubstr("as in a file of big-endian or floating-point numbers"));
    }
    EXPECT_THAT(WhyNotIds(SpanOf(As<float>(ids)), 4, vocab_size),
                HasSubstr("expected below vocab_size"));
  }
  const auto ids = Ids(kGpt2Vocabulary);
  EXPECT_THAT(WhyNotIds(SpanOf(As<uint16_t>(ids)), 4, kGpt2Vocabulary),
              HasSubstr("expected below vocab_size 50257; check data.format, data.dtype"));
  EXPECT_THAT(WhyNotIds(SpanOf(Turned(As<uint16_t>(ids), 2)), 2, kGpt2Vocabulary),
              HasSubstr("expected below vocab_size 50257"));
}

TEST(TokenJudge, KnowsOtherKindsOfFiles) {
  struct Beginning {
    std::string begins;
    const char* says;
  };
  const std::string text =
      "To be, or not to be: that is the question. Läuft das Schiffchen quer "
      "durch die Kette, so wird Tuch.\n";
  const Beginning cases[] = {
      {std::string("\x93NUMPY\x01\x00", 8), "found NumPy's .npy format"},
      {"PK\x03\x04", "found a zip archive (.npz, .pt)"},
      {std::string("\x1f\x8b\x08\x00", 4), "found a gzip file"},
      {"PAR1", "found a Parquet file"},
      {std::string("MMIDIDX\0\0", 9), "found Megatron-LM's .idx"},
      {As<int32_t>({20240520, 1, 9}), "set data.format to llmc or auto"},
      {As<int32_t>({20240801, 7, 9}), "set data.format to llmc or auto"},
      {As<int32_t>({20240522, 1, 9}), "llm.c's magic 20240522 of an evaluation"},
      {text, "found text, expected token ids; use data.format bytes"},
      {text + text + text + text, "found text"},
  };
  for (const Beginning& c : cases) {
    EXPECT_THAT(OtherKindOfFile(SpanOf(c.begins)), HasSubstr(c.says));
  }
  for (const int64_t vocab_size : {int64_t{65}, kGpt2Vocabulary, int64_t{65536}}) {
    EXPECT_THAT(OtherKindOfFile(SpanOf(As<uint16_t>(Ids(vocab_size)))), IsEmpty());
  }
}

class TokenWidth : public ::testing::Test {
 protected:
  TokenWidth() {
    std::string pattern = ::testing::TempDir() + "weft_width_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~TokenWidth() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& bytes,
                                                  const TokenEncoding& encoding) {
    const std::string path = folder_ + "/u.bin";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return TokenFile::Open(path, encoding);
  }
  std::string Refusal(const std::string& bytes, const TokenEncoding& encoding) {
    return std::string(Open(bytes, encoding).status().message());
  }

  std::string folder_;
};

TEST_F(TokenWidth, IsWhatTheHeaderOrDataDtypeSays) {
  constexpr auto kRaw = TokenFormat::kNanogpt;
  const auto ids = Ids(kLlama3Vocabulary, 400);
  const auto wide = Open(As<uint32_t>(ids), {kRaw, TokenDtype::kUint32, kLlama3Vocabulary});
  ASSERT_TRUE(wide.ok()) << wide.status();
  std::vector<int32_t> read(400);
  (*wide)->Read(0, absl::MakeSpan(read));
  EXPECT_EQ(std::vector<int64_t>(read.begin(), read.end()), ids);
  EXPECT_THAT(
      Refusal(As<uint32_t>(ids), {kRaw, {}, kLlama3Vocabulary}),
      HasSubstr("has no header, and 16 bits cannot hold the ids of a vocabulary of 128256"));
  EXPECT_THAT(Refusal(As<uint16_t>(ids), {kRaw, {}, kLlama3Vocabulary}),
              HasSubstr("say how wide its ids are: data.dtype uint32"));
  EXPECT_THAT(Refusal("abcdef", {kRaw, TokenDtype::kUint32, 9}),
              HasSubstr("found 6 bytes, expected a multiple of 4"));
  std::string llmc = As<int32_t>({20240520, 1, 400});
  llmc.resize(1024, '\0');
  llmc += As<uint16_t>(Ids(kGpt2Vocabulary, 400));
  EXPECT_TRUE(Open(llmc, {TokenFormat::kLlmc, {}, kLlama3Vocabulary}).ok());
  EXPECT_THAT(Refusal(llmc, {TokenFormat::kLlmc, TokenDtype::kUint32, kLlama3Vocabulary}),
              HasSubstr("its header says uint16, data.dtype says uint32"));
  EXPECT_THAT(Refusal(llmc, {TokenFormat::kLlmc, {}, 100}), HasSubstr("expected below vocab_size"));
}

}  // namespace
}  // namespace weft
