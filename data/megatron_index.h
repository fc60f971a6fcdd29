// The .idx beside a .bin of Megatron-LM's IndexedDataset: where in the .bin each sequence lies, and
// which of them are documents. Written by us with a sequence a document; read from anybody. All
// integers are little-endian, and none is aligned:
//
//   0   9 bytes   "MMIDIDX", 0, 0
//   9   u64       version, 1
//   17  u8        type of an id: 8 uint16, 4 int32 (others are no ids that weft reads)
//   18  u64       S, sequences
//   26  u64       D, documents + 1
//   34  i32[S]    tokens of each sequence
//       i64[S]    the byte of the .bin at which each begins: the sum of those before it
//       i64[D]    the first sequence of each document, and S
//       i8[S]     modes, of multimodal data alone; nothing says whether they are there
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Calls `put` with the bytes of the .idx, front to back, of so many sequences that are a document
// each. `length(i)`: tokens of sequence i; it is asked for all of them twice, in order.
absl::Status WriteMegatronIndex(int64_t sequences, int64_t item_bytes,
                                const std::function<absl::StatusOr<int32_t>(int64_t)>& length,
                                const std::function<absl::Status(absl::string_view)>& put);

struct MegatronIndex {
  int64_t item_bytes = 0;
  int64_t sequences = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
};

// Returns what an .idx says of its .bin. `bin_bytes`: the size of that. InvalidArgument, without
// the path: which part of the file, what was found there, what was expected. Reads all of it once.
absl::StatusOr<MegatronIndex> ReadMegatronIndex(absl::string_view idx, int64_t bin_bytes);

}  // namespace weft
