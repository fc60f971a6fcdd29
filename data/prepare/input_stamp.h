// InputStamp: a file of text as it was when the work on it began. One that has the same stamp has
// the same bytes; of a stream nothing is known. A disk counts time in ticks: a file that has been
// written to within the last one is stamped when that is over, so that whoever writes to it later
// leaves another time (what git calls racy). Files are opened for their stamps: NFS then asks its
// server, and a name alone would be answered from what it remembers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/prepare/chunk_reader.h"

namespace weft {

struct InputStamp {
  TextInput input;
  bool is_regular = false;  // false: a stream, which says nothing and cannot be read again
  int64_t changed_ns = 0;   // its bytes
  int64_t touched_ns = 0;   // its bytes, its name or its owner: nobody sets this one back
  int64_t inode = 0;
  // The tick of its last change is over. false: somebody goes on writing, or the disk's clock is
  // ahead of this one; then the next change may leave the same stamp.
  bool is_settled = true;
};

// Returns the stamps of what lies there now. NotFound or PermissionDenied, with the path.
absl::StatusOr<std::vector<InputStamp>> StampInputs(const std::vector<TextInput>& inputs);

// Returns a hash of what the stamps say.
std::string StampHash(const std::vector<InputStamp>& stamps);

// InvalidArgument, with the path: one of the stamps from `first` to `last` is no longer so.
absl::Status CheckUnchanged(const std::vector<InputStamp>& stamps, int64_t first, int64_t last);

}  // namespace weft
