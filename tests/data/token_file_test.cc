#include "data/token_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileTest() {
    std::string pattern = ::testing::TempDir() + "weft_tokens_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~TokenFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& bytes) {
    std::string path = folder_ + "/tokens.bin";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }

  std::string folder_;
};

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string Llmc(int32_t magic, int32_t version, int32_t tokens, const std::string& body) {
  std::string bytes;
  for (const int32_t field : {magic, version, tokens}) Append(bytes, field);
  bytes.resize(1024, '\0');
  return bytes + body;
}

std::vector<int32_t> AllTokens(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.tokens()));
  file.Read(0, absl::MakeSpan(tokens));
  return tokens;
}

TEST_F(TokenFileTest, ReadsBytesAsTokens) {
  const auto file = TokenFile::Open(Write("a\n\xff"), {TokenFormat::kBytes});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(AllTokens(**file), (std::vector<int32_t>{97, 10, 255}));
}

TEST_F(TokenFileTest, ReadsNanogptAsLittleEndianPairs) {
  const auto file =
      TokenFile::Open(Write(std::string("\x50\xc4\x01\x00", 4)), {TokenFormat::kNanogpt});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(AllTokens(**file), (std::vector<int32_t>{50256, 1}));
}

TEST_F(TokenFileTest, ReadsBothKindsOfLlmcFiles) {
  std::string narrow;
  for (const uint16_t id : {uint16_t{50256}, uint16_t{7}}) Append(narrow, id);
  auto file = TokenFile::Open(Write(Llmc(20240520, 1, 2, narrow)), {TokenFormat::kLlmc});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(AllTokens(**file), (std::vector<int32_t>{50256, 7}));

  std::string wide;
  for (const uint32_t id : {128000u, 5u, 4000000000u}) Append(wide, id);
  file = TokenFile::Open(Write(Llmc(20240801, 7, 3, wide)), {TokenFormat::kLlmc});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(AllTokens(**file), (std::vector<int32_t>{128000, 5, 2147483647}));
}

TEST_F(TokenFileTest, ReadsARangeInTheMiddle) {
  const auto file = TokenFile::Open(Write("0123456789"), {TokenFormat::kBytes});
  ASSERT_TRUE(file.ok());
  std::vector<int32_t> tokens(3);
  (*file)->Read(7, absl::MakeSpan(tokens));
  EXPECT_EQ(tokens, (std::vector<int32_t>{'7', '8', '9'}));
}

struct Lie {
  const char* name;
  std::string bytes;
  TokenFormat format;
  const char* message;
};

TEST_F(TokenFileTest, RefusesFilesThatLieAndSaysWhatWasFound) {
  const std::string two(4, '\1');
  const std::vector<Lie> lies = {
      {"empty", "", TokenFormat::kBytes, "the file is empty"},
      {"odd size", "abc", TokenFormat::kNanogpt, "found 3 bytes, expected an even number"},
      {"llmc read as nanogpt", Llmc(20240520, 1, 2, two), TokenFormat::kNanogpt,
       "set data.format to llmc"},
      {"wrong magic", Llmc(20240521, 1, 2, two), TokenFormat::kLlmc, "0: found magic 20240521"},
      {"eval file", Llmc(20240522, 1, 2, two), TokenFormat::kLlmc, "0: found magic 20240522"},
      {"wrong version", Llmc(20240520, 7, 2, two), TokenFormat::kLlmc,
       "4: found version 7, expected 1"},
      {"other kind's version", Llmc(20240801, 1, 1, two), TokenFormat::kLlmc,
       "4: found version 1, expected 7"},
      {"no tokens", Llmc(20240520, 1, 0, ""), TokenFormat::kLlmc, "8: found 0 tokens"},
      {"negative count", Llmc(20240520, 1, -1, two), TokenFormat::kLlmc, "8: found -1 tokens"},
      {"largest count", Llmc(20240520, 1, 2147483647, two), TokenFormat::kLlmc,
       "found 1028 bytes, expected 4294968318"},
      {"one token too few", Llmc(20240520, 1, 3, two), TokenFormat::kLlmc,
       "found 1028 bytes, expected 1030"},
      {"one token too many", Llmc(20240520, 1, 1, two), TokenFormat::kLlmc,
       "found 1028 bytes, expected 1026"},
  };
  for (const Lie& lie : lies) {
    const std::string path = Write(lie.bytes);
    const auto file = TokenFile::Open(path, {lie.format});
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << lie.name;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(lie.message)) << lie.name;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path)) << lie.name;
  }
}

TEST_F(TokenFileTest, RefusesALlmcHeaderCutAtEveryByte) {
  const std::string whole = Llmc(20240520, 1, 1, std::string(2, '\1'));
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto file = TokenFile::Open(Write(whole.substr(0, size)), {TokenFormat::kLlmc});
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << size << " bytes";
  }
  EXPECT_TRUE(TokenFile::Open(Write(whole), {TokenFormat::kLlmc}).ok());
}

TEST_F(TokenFileTest, NamesWhatCannotBeOpened) {
  const auto missing = TokenFile::Open(folder_ + "/absent", {TokenFormat::kBytes});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(folder_ + "/absent"));

  const auto folder = TokenFile::Open(folder_, {TokenFormat::kBytes});
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("is a folder"));

  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(TokenFile::Open(pipe, {TokenFormat::kBytes}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TokenFileTest, NamesWhatMayNotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const std::string closed = Write("abc");
  ASSERT_EQ(chmod(closed.c_str(), 0), 0);
  EXPECT_EQ(TokenFile::Open(closed, {TokenFormat::kBytes}).status().code(),
            absl::StatusCode::kPermissionDenied);
}

std::string FingerprintOf(const std::string& path) {
  const auto file = TokenFile::Open(path, {TokenFormat::kBytes});
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? (*file)->Fingerprint() : "";
}

TEST_F(TokenFileTest, FingerprintSeesEveryByteOfAFileOfUpTo16MiB) {
  std::string bytes(16 << 20, 'x');
  const std::string whole = FingerprintOf(Write(bytes));
  EXPECT_THAT(whole, ::testing::MatchesRegex("16777216:[0-9a-f]{16}"));
  EXPECT_EQ(FingerprintOf(Write(bytes)), whole);
  for (const size_t place : {size_t{0}, size_t{2'000'001}, size_t{9} << 20, bytes.size() - 1}) {
    bytes[place] = 'y';
    EXPECT_NE(FingerprintOf(Write(bytes)), whole) << "byte " << place;
    bytes[place] = 'x';
  }
  bytes.pop_back();
  EXPECT_NE(FingerprintOf(Write(bytes)), whole);
}

TEST_F(TokenFileTest, FingerprintSeesA64thOfALongerFileWhereverItChanged) {
  std::string bytes(40 << 20, 'x');
  const std::string whole = FingerprintOf(Write(bytes));
  const size_t part = bytes.size() / 64 + (64 << 10);
  for (const size_t place : {size_t{0}, size_t{1} << 20, size_t{17'000'001}, bytes.size() - part}) {
    std::string changed = bytes;
    changed.replace(place, part, part, 'y');
    EXPECT_NE(FingerprintOf(Write(changed)), whole) << "from byte " << place;
  }
  for (const size_t place : {size_t{0}, bytes.size() - 1}) {
    bytes[place] = 'y';
    EXPECT_NE(FingerprintOf(Write(bytes)), whole) << "byte " << place;
    bytes[place] = 'x';
  }
}

}  // namespace
}  // namespace weft
