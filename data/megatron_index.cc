#include "data/megatron_index.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr size_t kHeadBytes = 34;
constexpr size_t kBufferBytes = size_t{1} << 20;

struct IdType {
  uint8_t code;
  int64_t item_bytes;
};
constexpr IdType kIdTypes[] = {{8, 2}, {4, 4}};

template <typename T>
void Put(T value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T At(absl::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

absl::Status Wrong(absl::string_view where, int64_t found, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": found ", found, ", expected ", expected));
}

absl::Status CheckSequences(absl::string_view idx, int64_t bin_bytes, MegatronIndex* index) {
  const auto sequences = static_cast<size_t>(index->sequences);
  const size_t pointers = kHeadBytes + 4 * sequences;
  int64_t next = 0;
  for (size_t i = 0; i < sequences; ++i) {
    const int32_t length = At<int32_t>(idx, kHeadBytes + 4 * i);
    const int64_t pointer = At<int64_t>(idx, pointers + 8 * i);
    if (length < 0) return Wrong(absl::StrCat("length of sequence ", i), length, "0 or more");
    if (pointer != next) {
      return Wrong(absl::StrCat("pointer of sequence ", i), pointer,
                   absl::StrCat(next, ", the end of the one before"));
    }
    next += length * index->item_bytes;
    index->tokens += length;
  }
  if (next == bin_bytes) return absl::OkStatus();
  return Wrong("the .bin beside it", bin_bytes,
               absl::StrCat(next, " bytes, the end of its last sequence"));
}

absl::Status CheckDocuments(absl::string_view idx, const MegatronIndex& index) {
  const size_t at = kHeadBytes + 12 * static_cast<size_t>(index.sequences);
  int64_t before = 0;
  for (int64_t i = 0; i <= index.documents; ++i) {
    const int64_t first = At<int64_t>(idx, at + 8 * static_cast<size_t>(i));
    const bool is_edge = i == 0 || i == index.documents;
    const int64_t edge = i == 0 ? 0 : index.sequences;
    if ((is_edge && first != edge) || first < before || first > index.sequences) {
      return Wrong(absl::StrCat("first sequence of document ", i), first,
                   is_edge ? absl::StrCat(edge) : absl::StrCat(before, " to ", index.sequences));
    }
    before = first;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteMegatronIndex(int64_t sequences, int64_t item_bytes,
                                const std::function<absl::StatusOr<int32_t>(int64_t)>& length,
                                const std::function<absl::Status(absl::string_view)>& put) {
  std::string bytes(kMagic);
  Put(kVersion, &bytes);
  for (const IdType& type : kIdTypes) {
    if (type.item_bytes == item_bytes) Put(type.code, &bytes);
  }
  Put<int64_t>(sequences, &bytes);
  Put<int64_t>(sequences + 1, &bytes);
  CHECK(bytes.size() == kHeadBytes);
  const auto flush_full = [&]() -> absl::Status {
    if (bytes.size() < kBufferBytes) return absl::OkStatus();
    RETURN_IF_ERROR(put(bytes));
    bytes.clear();
    return absl::OkStatus();
  };
  for (int64_t i = 0; i < sequences; ++i) {
    ASSIGN_OR_RETURN(const int32_t tokens, length(i));
    Put(tokens, &bytes);
    RETURN_IF_ERROR(flush_full());
  }
  int64_t pointer = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    ASSIGN_OR_RETURN(const int32_t tokens, length(i));
    Put(pointer, &bytes);
    pointer += tokens * item_bytes;
    RETURN_IF_ERROR(flush_full());
  }
  for (int64_t i = 0; i <= sequences; ++i) {
    Put(i, &bytes);
    RETURN_IF_ERROR(flush_full());
  }
  return put(bytes);
}

absl::StatusOr<MegatronIndex> ReadMegatronIndex(absl::string_view idx, int64_t bin_bytes) {
  if (idx.size() < kHeadBytes || idx.substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError(
        "found no header of Megatron-LM's .idx, expected MMIDIDX and 34 bytes");
  }
  const uint64_t version = At<uint64_t>(idx, 9);
  if (version != kVersion) return Wrong("version", static_cast<int64_t>(version), "1");
  MegatronIndex index;
  const uint8_t code = At<uint8_t>(idx, 17);
  for (const IdType& type : kIdTypes) {
    if (type.code == code) index.item_bytes = type.item_bytes;
  }
  if (index.item_bytes == 0) return Wrong("type of ids", code, "8 (uint16) or 4 (int32)");
  const auto sequences = At<uint64_t>(idx, 18), ends = At<uint64_t>(idx, 26);
  const uint64_t size = idx.size();
  // Each takes 12 bytes of the file, so that no product below is beyond 64 bits.
  if (sequences > size / 12) {
    return Wrong("number of sequences", static_cast<int64_t>(sequences),
                 absl::StrCat("at most ", size / 12, " in ", size, " bytes"));
  }
  if (ends < 1 || ends > size / 8) {
    return Wrong("number of documents + 1", static_cast<int64_t>(ends),
                 absl::StrCat("1 to ", size / 8));
  }
  const uint64_t least = kHeadBytes + 12 * sequences + 8 * ends;
  if (size != least && size != least + sequences) {
    return Wrong("size", static_cast<int64_t>(size),
                 absl::StrCat(least, " bytes, or ", least + sequences, " with modes"));
  }
  index.sequences = static_cast<int64_t>(sequences);
  index.documents = static_cast<int64_t>(ends) - 1;
  RETURN_IF_ERROR(CheckSequences(idx, bin_bytes, &index));
  RETURN_IF_ERROR(CheckDocuments(idx, index));
  return index;
}

}  // namespace weft
