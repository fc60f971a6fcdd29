#include "data/megatron_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace weft {
namespace {

using testing::HasSubstr;

std::string IndexOf(const std::vector<int32_t>& lengths, int64_t item_bytes = 2) {
  std::string idx;
  const absl::Status status = WriteMegatronIndex(
      std::ssize(lengths), item_bytes,
      [&](int64_t i) -> absl::StatusOr<int32_t> { return lengths[static_cast<size_t>(i)]; },
      [&](absl::string_view bytes) {
        idx.append(bytes.data(), bytes.size());
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok());
  return idx;
}

template <typename T>
std::string With(std::string idx, size_t at, T value) {
  std::memcpy(idx.data() + at, &value, sizeof value);
  return idx;
}

TEST(MegatronIndex, IsWhatMegatronWrites) {
  // Two documents, of 3 and 2 tokens of 16 bits, as megatron-core 0.16.1 writes them.
  const unsigned char expected[] = {
      'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8,  //
      2,   0,   0,   0,   0,   0,   0,   0, 3, 0, 0, 0, 0, 0, 0, 0,        //
      3,   0,   0,   0,   2,   0,   0,   0,                                //
      0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0,        //
      0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(IndexOf({3, 2}), std::string(reinterpret_cast<const char*>(expected), sizeof expected));
}

TEST(MegatronIndex, ReadsWhatItWrites) {
  const auto index = ReadMegatronIndex(IndexOf({3, 0, 2}, 4), 20);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->item_bytes, 4);
  EXPECT_EQ(index->sequences, 3);
  EXPECT_EQ(index->documents, 3);
  EXPECT_EQ(index->tokens, 5);
  // Modes of multimodal data may stand at the end.
  EXPECT_TRUE(ReadMegatronIndex(IndexOf({3, 2}) + std::string(2, '\0'), 10).ok());
}

TEST(MegatronIndex, SaysWhichPartIsWrong) {
  const std::string idx = IndexOf({3, 2});
  const struct {
    std::string idx;
    int64_t bin_bytes;
    const char* says;
  } cases[] = {
      {idx.substr(0, 33), 10, "found no header of Megatron-LM's .idx"},
      {With<char>(idx, 0, 'N'), 10, "found no header"},
      {With<int64_t>(idx, 9, 2), 10, "version: found 2, expected 1"},
      {With<uint8_t>(idx, 17, 5), 10, "type of ids: found 5, expected 8 (uint16) or 4 (int32)"},
      {With<int64_t>(idx, 18, int64_t{1} << 60), 10,
       "number of sequences: found 1152921504606846976"},
      {With<int64_t>(idx, 18, -1), 10, "number of sequences: found -1"},
      {With<int64_t>(idx, 26, 0), 10, "number of documents + 1: found 0"},
      {With<int64_t>(idx, 26, 2), 10, "size: found 82, expected 74 bytes, or 76 with modes"},
      {idx + "abc", 10, "size: found 85"},
      {With<int32_t>(idx, 38, -2), 10, "length of sequence 1: found -2, expected 0 or more"},
      {With<int64_t>(idx, 50, 4), 10, "pointer of sequence 1: found 4, expected 6"},
      {With<int64_t>(idx, 58, 1), 10, "first sequence of document 0: found 1, expected 0"},
      {With<int64_t>(idx, 66, 3), 10, "first sequence of document 1: found 3, expected 0 to 2"},
      {With<int64_t>(idx, 74, 1), 10, "first sequence of document 2: found 1, expected 2"},
      {idx, 12, "the .bin beside it: found 12, expected 10 bytes"},
  };
  for (const auto& c : cases) {
    const auto index = ReadMegatronIndex(c.idx, c.bin_bytes);
    ASSERT_TRUE(absl::IsInvalidArgument(index.status())) << c.says;
    EXPECT_THAT(std::string(index.status().message()), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace weft
