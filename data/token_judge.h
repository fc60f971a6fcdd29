// The bytes of a file may speak against its being token ids of the width that they would be read
// with. A file of another kind or width trains without a word on nonsense: nothing else of such a
// file is wrong. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace weft {

// llm.c's token files begin with these.
inline constexpr int32_t kLlmcGpt2Magic = 20240520;   // 16-bit ids
inline constexpr int32_t kLlmcLlamaMagic = 20240801;  // 32-bit ids

// Returns what a file is instead of ids without a header, and what to do: "found ..., expected ...;
// ..."; empty: it may be ids. `file`: all of it.
std::string OtherKindOfFile(absl::Span<const uint8_t> file);

// Returns why `ids`, of 2 or 4 bytes each, are none of a vocabulary of `vocab_size` (0: not known):
// numbers of another width, or ids that it does not have. Empty: they may be. At most 16 blocks of
// 4 KiB are read, evenly spread.
std::string WhyNotIds(absl::Span<const uint8_t> ids, int64_t item_bytes, int64_t vocab_size);

}  // namespace weft
