// JSON that somebody else has written: a model's files, a run's, what a program answers, a job that
// comes over the wire. All of weft reads it here, because whoever wrote it may have meant harm or
// have lost a disk: nothing is built of a text that is larger or nested deeper than its kind ever
// is, and nothing is thrown. A value that has been read is at most `most_depth` deep, so it may be
// copied, compared, printed and walked by recursion. Any thread.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// A text of each kind may hold so many bytes: more than any that is meant.
inline constexpr int64_t kMostJsonBytes = int64_t{1} << 20;     // a line, a record, an answer
inline constexpr int64_t kMostJobTextBytes = int64_t{8} << 20;  // of 20,000 data files; gRPC: 4 MiB

struct JsonLimits {
  int64_t most_bytes = kMostJsonBytes;
  int most_depth = 64;            // the deepest that weft reads, a tokenizer.json, has 7
  bool is_key_told_once = false;  // else the last value of a key that stands twice counts
};

// Returns the value that `text` is, or InvalidArgument: what was found, at which line and byte, and
// what is allowed. The caller knows the file's name. Bytes that are no UTF-8, NULs, numbers beyond
// 1.8e308 and anything behind the value are refused.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits = {});
// The same, with keys in the order of the text: for what is shown again, or whose order counts.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text,
                                                        const JsonLimits& limits = {});

// Returns at most 80 bytes of what others have written, for a message.
std::string Shortened(absl::string_view text);

}  // namespace weft
