#include "checkpoint/safetensors.h"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/durable_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    std::string pattern = ::testing::TempDir() + "weft_safetensors_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/file.safetensors";
  }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }

  void WriteBytes(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string ReadBytes() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  // A file with this header text, honest about its length.
  absl::Status OpenHeader(const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    WriteBytes(std::string(reinterpret_cast<const char*>(&length), 8) + header +
               std::string(data_bytes, '\0'));
    return SafetensorsFile::Open(path_).status();
  }

  std::string folder_;
  std::string path_;
};

// One F32 [2,3] tensor: 24 bytes of data.
constexpr char kGood[] = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

TEST_F(SafetensorsTest, WhatIsWrittenReadsBack) {
  std::mt19937 random(1);
  const std::vector<std::vector<int64_t>> shapes = {{}, {1}, {7}, {3, 5}, {0}, {0, 4}, {2, 3, 4}};
  std::vector<std::vector<float>> values;
  std::vector<TensorToWrite> tensors;
  for (const auto& dims : shapes) {
    size_t elements = 1;
    for (const int64_t dim : dims) elements *= static_cast<size_t>(dim);
    values.emplace_back();
    for (size_t i = 0; i < elements; ++i) values.back().push_back(static_cast<float>(random()));
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    // Names that JSON must escape are names, too.
    tensors.push_back({"tensor \"\\\n" + std::to_string(9 - i), shapes[i], values[i]});
  }
  const auto written = WriteSafetensors(path_, tensors, {{"key", "value \"quoted\""}});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->bytes, static_cast<int64_t>(std::filesystem::file_size(path_)));
  EXPECT_EQ(written->xxh3, *HashFile(path_));
  EXPECT_EQ(written->xxh3, HashBytes(ReadBytes()));

  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->metadata().at("key"), "value \"quoted\"");
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  EXPECT_EQ((*file)->tensors().size(), shapes.size());
  EXPECT_EQ((*file)->Find("absent"), nullptr);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const StoredTensor* stored = (*file)->Find(tensors[i].name);
    ASSERT_NE(stored, nullptr) << tensors[i].name;
    EXPECT_EQ(stored->dims, shapes[i]);
    std::vector<float> read(values[i].size());
    (*file)->Read(*stored, 0, std::ssize(read), read.data());
    EXPECT_EQ(read, values[i]) << tensors[i].name;
  }
  const StoredTensor& part = *(*file)->Find(tensors[3].name);
  float two[2];
  (*file)->Read(part, 7, 2, two);
  EXPECT_EQ(two[0], values[3][7]);
  EXPECT_EQ(two[1], values[3][8]);
}

TEST_F(SafetensorsTest, WritesTheBytesOfTheFormat) {
  const std::vector<float> ones = {1, -2};
  ASSERT_TRUE(WriteSafetensors(path_, {{{"b", {2}, ones}, {"a", {1, 2}, ones}}}, {}).ok());
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})";
  while (header.size() % 8 != 0) header += ' ';
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  const std::string bytes = ReadBytes();
  EXPECT_EQ(bytes.substr(8), header + data + data);
  EXPECT_EQ(bytes.substr(0, 8),
            std::string(1, static_cast<char>(header.size())) + std::string(7, '\0'));
}

TEST_F(SafetensorsTest, ReadsTensorsAtAnyAlignment) {
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  for (int padding = 0; padding < 8; ++padding) {
    std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    header.append(static_cast<size_t>(padding), ' ');
    const uint64_t length = header.size();
    WriteBytes(std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
    const auto file = SafetensorsFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    float read[2];
    (*file)->Read((*file)->tensors()[0], 0, 2, read);
    EXPECT_EQ(read[0], 1.0f) << padding;
    EXPECT_EQ(read[1], -2.0f) << padding;
  }
}

TEST_F(SafetensorsTest, TakesWhatOtherWritersMayWrite) {
  EXPECT_TRUE(OpenHeader("{}", 0).ok());
  EXPECT_TRUE(OpenHeader(R"({"__metadata__":{}})", 0).ok());
  EXPECT_TRUE(OpenHeader(kGood, 24).ok());
  // Any order of names, a scalar, a half-byte dtype, an empty tensor between two others.
  EXPECT_TRUE(OpenHeader(R"({"z":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
      "y":{"data_offsets":[4,4],"shape":[0,9],"dtype":"BF16"},
      "x":{"dtype":"F4","shape":[4],"data_offsets":[4,6]}})",
                         6)
                  .ok());
}

struct Lie {
  const char* header;
  size_t data_bytes;
  const char* message;
};

TEST_F(SafetensorsTest, RefusesEachFieldThatLies) {
  const Lie lies[] = {
      {"", 0, "'{'"},
      {" {}", 0, "'{'"},
      {"[]", 0, "'{'"},
      {"{", 0, "not JSON"},
      {"{}x", 0, "not JSON"},
      {R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 23, "24 bytes"},
      {R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 25, "24 bytes"},
      {R"({"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,24]}})", 24, "expected 32 bytes"},
      {R"({"w":{"dtype":"F16","shape":[2,3],"data_offsets":[0,24]}})", 24, "expected 12 bytes"},
      {R"({"w":{"dtype":"F31","shape":[2,3],"data_offsets":[0,24]}})", 24, "dtype 'F31'"},
      {R"({"w":{"dtype":32,"shape":[2,3],"data_offsets":[0,24]}})", 24, "dtype"},
      {R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "F4"},
      {R"({"w":{"shape":[2,3],"data_offsets":[0,24]}})", 24, "dtype, shape and data_offsets"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,24]}})", 24, "dtype, shape and data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[2,3]}})", 24, "dtype, shape and data_offsets"},
      {R"({"w":[]})", 0, "an object of"},
      {R"({"w":{"dtype":"F32","shape":6,"data_offsets":[0,24]}})", 24, "shape"},
      {R"({"w":{"dtype":"F32","shape":[-2,-3],"data_offsets":[0,24]}})", 24, "shape entry -2"},
      {R"({"w":{"dtype":"F32","shape":[2.0,3],"data_offsets":[0,24]}})", 24, "shape entry 2.0"},
      {R"({"w":{"dtype":"F32","shape":["2",3],"data_offsets":[0,24]}})", 24, "shape entry"},
      // Products that wrap to 24 bytes, or beyond i64, u64, double.
      {R"({"w":{"dtype":"F32","shape":[4611686018427387910],"data_offsets":[0,24]}})", 24, "-1"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "-1"},
      {R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0, "shape"},
      {R"({"w":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,0]}})", 0, "shape"},
      {R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[0]}})", 24, "data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[0,24,48]}})", 24, "data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[-24,0]}})", 24, "data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[24,0]}})", 24, "data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[1,25]}})", 25, "offset 0: no holes"},
      {R"({"w":{"dtype":"F32","shape":[6],"data_offsets":[8,32]}})", 24, "offset 0: no holes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "no overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "offset 4: no holes"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
           "a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
       0, "key \"a\" twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0,
       "key \"dtype\" twice"},
      {R"({"__metadata__":{"k":1}})", 0, "'k' that is not a string"},
      {R"({"__metadata__":"k"})", 0, "__metadata__ that is not an object"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "key \"k\" twice"},
  };
  for (const Lie& lie : lies) {
    const absl::Status status = OpenHeader(lie.header, lie.data_bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << lie.header << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(lie.message)) << lie.header;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_ + ": ")) << lie.header;
  }
}

TEST_F(SafetensorsTest, RefusesLengthsBeyondTheFileOrTheLimit) {
  const std::string body = std::string(kGood) + std::string(24, '\0');
  for (const uint64_t length : {uint64_t{body.size() + 1}, uint64_t{100'000'001}, uint64_t{1} << 63,
                                ~uint64_t{0}, ~uint64_t{0} - 7}) {
    WriteBytes(std::string(reinterpret_cast<const char*>(&length), 8) + body);
    const absl::Status status = SafetensorsFile::Open(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a header of")) << length;
  }
}

TEST_F(SafetensorsTest, RefusesAFileCutAtEveryByte) {
  ASSERT_TRUE(WriteSafetensors(path_, {{{"w", {2}, std::vector<float>{1, 2}}}}, {}).ok());
  const std::string whole = ReadBytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteBytes(whole.substr(0, size));
    EXPECT_EQ(SafetensorsFile::Open(path_).status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

// Any header gives a file whose tensors can be read, or an error: never a crash.
TEST_F(SafetensorsTest, SurvivesEveryBitFlipOfTheHeader) {
  ASSERT_TRUE(WriteSafetensors(path_, {{{"w", {2}, std::vector<float>{1, 2}}}}, {}).ok());
  const std::string whole = ReadBytes();
  for (size_t bit = 0; bit < (whole.size() - 8) * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    WriteBytes(flipped);
    const auto file = SafetensorsFile::Open(path_);
    if (!file.ok()) continue;
    for (const StoredTensor& tensor : (*file)->tensors()) {
      if (tensor.dtype != "F32") continue;
      std::vector<float> read(static_cast<size_t>((tensor.end - tensor.begin) / 4));
      (*file)->Read(tensor, 0, std::ssize(read), read.data());
    }
  }
}

TEST_F(SafetensorsTest, SurvivesDeepAndLongNonsense) {
  EXPECT_FALSE(OpenHeader("{\"a\":" + std::string(100000, '['), 0).ok());
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{\"a\":";
  EXPECT_FALSE(OpenHeader(nested + "1" + std::string(100000, '}'), 0).ok());
  EXPECT_FALSE(OpenHeader("{\"\xff\xfe\":1}", 0).ok());
  EXPECT_FALSE(OpenHeader("{\"a\":" + std::string(100000, '9') + "}", 0).ok());
}

TEST_F(SafetensorsTest, NamesWhatCannotBeOpened) {
  EXPECT_EQ(SafetensorsFile::Open(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(folder_).status().code(), absl::StatusCode::kDataLoss);
}

// Fixed by the xxHash specification; the reference model makes its weights from the same keys.
TEST(NameKey, IsXxh3OfTheName) {
  EXPECT_EQ(NameKey(""), 0x2d06800538d394c2u);
  EXPECT_EQ(NameKey("embed.tokens.weight"), 0x26e59c28b85cdce8u);
}

}  // namespace
}  // namespace weft
