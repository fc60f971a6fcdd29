// The files of text that a person names to be prepared: files, patterns, folders, or a stream.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/prepare/chunk_reader.h"
#include "data/prepare/text_kind.h"

namespace weft {

// Returns the files in the order of `named`, those of a folder (with all folders below it, but no
// links to folders) and of a pattern sorted by their names' bytes. Hidden files of a folder, and
// those that are no text by their names, are passed over, with a note. `format`: of all of them;
// else as their names say, and jsonl of kStandardInput. InvalidArgument, NotFound or
// PermissionDenied, with the path: one that cannot be read, or is of another kind; a file that is
// named twice; a folder without any.
absl::StatusOr<std::vector<TextInput>> FindTextInputs(const std::vector<std::string>& named,
                                                      std::optional<TextFormat> format,
                                                      std::vector<std::string>* notes);

}  // namespace weft
