#include "data/token_judge.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "data/unicode.h"
#include "plan/errors.h"

namespace weft {
namespace {

using ByteSpan = absl::Span<const uint8_t>;

constexpr size_t kBlockBytes = 4096;
constexpr size_t kMostBlocks = 16;
constexpr absl::string_view kConvert =
    "; weft reads uint16 and uint32: numpy's astype(\"uint32\").tofile(FILE) writes them";

struct KindOfFile {
  absl::string_view begins;
  absl::string_view what;
  absl::string_view cure;
};
constexpr absl::string_view kUnpack = "; unpack it, and name a file of plain ids";
constexpr absl::string_view kTokens = "; name a file of token ids";
constexpr KindOfFile kKindsOfFile[] = {
    {"\x93NUMPY", "NumPy's .npy format",
     "; write plain ids: numpy.load(FILE).astype(\"uint32\").tofile(\"ids.bin\") and data.dtype "
     "uint32"},
    {"PK\x03\x04", "a zip archive (.npz, .pt)", kUnpack},
    {"\x1f\x8b\x08", "a gzip file", kUnpack},
    {"\x28\xb5\x2f\xfd", "a zstd file", kUnpack},
    {"\xfd\x37zXZ", "an xz file", kUnpack},
    {"BZh", "a bzip2 file", kUnpack},
    {"PAR1", "a Parquet file", kTokens},
    {"ARROW1", "an Arrow file", kTokens},
    {"\x89HDF\r\n", "an HDF5 file", kTokens},
    {"MMIDIDX", "Megatron-LM's .idx", "; name the .bin beside it"},
    {"\x80\x04\x95", "a Python pickle", kTokens},
};

// llm.c's files by the number that they begin with.
struct LlmcKind {
  int32_t magic;
  absl::string_view what;
  absl::string_view cure;
};
constexpr absl::string_view kIsLlmc =
    ", but a nanogpt file has no header; set data.format to llmc or auto";
constexpr LlmcKind kLlmcKinds[] = {
    {kLlmcGpt2Magic, "tokens", kIsLlmc},  {kLlmcLlamaMagic, "tokens", kIsLlmc},
    {20240522, "an evaluation", kTokens}, {20240326, "a model", kTokens},
    {20240527, "a state", kTokens},       {20240328, "a tokenizer", kTokens},
};

template <typename T>
T LoadAt(ByteSpan bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

// Text in UTF-8 without control characters. Ids are no such text: of the numbers of two bytes one
// in seven at most is.
bool IsText(ByteSpan file) {
  constexpr size_t kLeast = 64;
  const size_t size = std::min(file.size(), kBlockBytes);
  if (size < kLeast) return false;
  absl::string_view text(reinterpret_cast<const char*>(file.data()), size);
  text.remove_suffix(static_cast<size_t>(UnfinishedBytes(text)));
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    const char32_t code = character.code_point;
    const bool is_blank = code == '\t' || code == '\n' || code == '\r' || code == '\f';
    if (code == kNoCharacter || (code < 0x20 && !is_blank) || code == 0x7f) return false;
    at += static_cast<size_t>(character.bytes);
  }
  return true;
}

// The blocks of `ids` that are looked at. Each begins at a multiple of 8 bytes.
template <typename Look>
void ForEachBlock(ByteSpan ids, const Look& look) {
  const size_t blocks = std::min(kMostBlocks, (ids.size() + kBlockBytes - 1) / kBlockBytes);
  for (size_t block = 0; block < blocks; ++block) {
    const size_t last = ids.size() < kBlockBytes ? 0 : ids.size() - kBlockBytes;
    const size_t first = blocks == 1 ? 0 : last / (blocks - 1) * block / 8 * 8;
    look(first, ids.subspan(first, kBlockBytes));
  }
}

// PairCount counts the pairs of neighbours in which a number stands beside a zero, or nearly one.
struct PairCount {
  int64_t first = 0;         // pairs whose first number is not 0
  int64_t first_alone = 0;   // of these, those whose second one is at most `small`
  int64_t second = 0;        // pairs whose second number is not 0
  int64_t second_alone = 0;  // of these, those whose first one is 0

  static bool IsMost(int64_t part, int64_t whole) { return whole >= 16 && part * 20 >= whole * 19; }
  bool is_wide() const { return IsMost(first_alone, first); }
  bool is_turned() const { return IsMost(second_alone, second); }
};

template <typename T>
PairCount CountPairs(ByteSpan ids, T small) {
  PairCount count;
  ForEachBlock(ids, [&](size_t, ByteSpan block) {
    for (size_t pair = 0; pair + 1 < block.size() / sizeof(T); pair += 2) {
      const T first = LoadAt<T>(block, pair), second = LoadAt<T>(block, pair + 1);
      count.first += first != 0 ? 1 : 0;
      count.first_alone += first != 0 && second <= small ? 1 : 0;
      count.second += second != 0 ? 1 : 0;
      count.second_alone += second != 0 && first == 0 ? 1 : 0;
    }
  });
  return count;
}

std::string WhyNot16Bits(ByteSpan ids, int64_t vocab_size) {
  const auto small =
      static_cast<uint16_t>(std::clamp<int64_t>((vocab_size - 1) / 65536, 0, 0x7fff));
  const PairCount pairs = CountPairs<uint16_t>(ids, small);
  if (pairs.is_wide()) {
    const bool is_64 = ids.size() % 8 == 0 && CountPairs<uint32_t>(ids, 0).is_wide();
    return absl::StrCat("every second 16-bit number in it is ",
                        small == 0 ? "0" : absl::StrCat("at most ", small), ", as in a file of ",
                        is_64 ? "64-bit ids" : "32-bit ids", ", but it would be read as uint16",
                        is_64 ? kConvert : "; set data.dtype to uint32");
  }
  if (!pairs.is_turned()) return "";
  return absl::StrCat("the first of every two 16-bit numbers in it is 0, as in a file of ",
                      "big-endian or floating-point numbers", kConvert);
}

std::string WhyNot32Bits(ByteSpan ids) {
  const PairCount pairs = CountPairs<uint32_t>(ids, 0);
  if (!pairs.is_wide() && !pairs.is_turned()) return "";
  return absl::StrCat("every second 32-bit number in it is 0, as in a file of 64-bit ids",
                      kConvert);
}

// The first id, of those looked at, that the vocabulary does not have.
template <typename T>
std::string WhyOutside(ByteSpan ids, int64_t vocab_size) {
  std::string why;
  ForEachBlock(ids, [&](size_t first, ByteSpan block) {
    for (size_t i = 0; why.empty() && i < block.size() / sizeof(T); ++i) {
      const int64_t id = LoadAt<T>(block, i);
      if (id < vocab_size) continue;
      why = absl::StrCat("token ", first / sizeof(T) + i, ": found id ", id,
                         ", expected below vocab_size ", vocab_size,
                         "; check data.format, data.dtype and model.vocab_size");
    }
  });
  return why;
}

}  // namespace

std::string OtherKindOfFile(ByteSpan file) {
  const absl::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const KindOfFile& kind : kKindsOfFile) {
    if (absl::StartsWith(text, kind.begins)) {
      return absl::StrCat("found ", kind.what, ", expected token ids without a header", kind.cure);
    }
  }
  const int32_t magic = file.size() < 4 ? 0 : LoadAt<int32_t>(file, 0);
  for (const LlmcKind& kind : kLlmcKinds) {
    // No GPT-2 tokenizer yields what the magics are as 16-bit ids: one above 55,000, then 308.
    if (kind.magic == magic) {
      return absl::StrCat("0: found llm.c's magic ", magic, " of ", kind.what, kind.cure);
    }
  }
  if (!IsText(file)) return "";
  return "found text, expected token ids; use data.format bytes to train on its bytes, or tokenize "
         "it first";
}

std::string WhyNotIds(ByteSpan ids, int64_t item_bytes, int64_t vocab_size) {
  CHECK(item_bytes == 2 || item_bytes == 4);
  std::string why = item_bytes == 2 ? WhyNot16Bits(ids, vocab_size) : WhyNot32Bits(ids);
  if (!why.empty() || vocab_size == 0) return why;
  return item_bytes == 2 ? WhyOutside<uint16_t>(ids, vocab_size)
                         : WhyOutside<uint32_t>(ids, vocab_size);
}

}  // namespace weft
