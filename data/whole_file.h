// Files and streams that are read as a whole: text that people or tools wrote, into memory. What a
// person names may be anything: a device without an end, a pipe that nobody writes to, a disk image
// by mistake. So every reading has a most that it takes and a wait that ends. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// A file of each kind may hold so many bytes: more than any that is meant.
inline constexpr int64_t kMostSpecBytes = int64_t{1} << 20;  // job, cluster profile, config.json
inline constexpr int64_t kMostPromptBytes = int64_t{4} << 20;
inline constexpr int64_t kMostIndexBytes = int64_t{64} << 20;  // tokenizer, list of weight files

// The content of a regular file, or of a pipe whose writer ends within 8 s (`<(command)`).
// InvalidArgument, naming the path, for anything else, for what cannot be read, and for more than
// `most_bytes`; a file that is larger is not read at all.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t most_bytes);

// Returns what comes from an open descriptor until its end, however long that takes, or until *stop
// is true (then Cancelled). InvalidArgument as above, under the name `name`.
absl::StatusOr<std::string> ReadWholeStream(int fd, const std::string& name, int64_t most_bytes,
                                            const std::atomic<bool>& stop);

}  // namespace weft
