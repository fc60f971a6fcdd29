// Files and streams that are read as a whole: text that people or tools wrote, into memory; and
// files that a person names to be written. What a person names may be anything: a device without an
// end, a pipe with nobody at its other end, a disk image by mistake. So every reading has a most
// that it takes, and every wait ends. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

// Returns whether `path` can become a regular file or is one: InvalidArgument, naming the path, for
// a folder, a pipe, a device or a socket, and where there is no folder to write in. To be asked
// before work whose result goes there.
absl::Status CheckOutputFile(const std::string& path);
// Makes `text` the content of a regular file, a new one or one that is there. InvalidArgument as
// above, and for what cannot be written; waits for nobody.
absl::Status WriteWholeFile(const std::string& path, absl::string_view text);

}  // namespace weft
