// A run is known by its id: 16 hex digits, drawn once and kept in its folder, in the file `run_id`.
// Paths are addresses: a folder may be moved, mounted twice, or seen under the same path in two
// containers. Manifests, temporary files and processes of the run carry the id, so two folders with
// the same one would take each other's for their own. A folder that was copied is told from one
// that was moved by looking: where the old one still stands with the id, or a launcher with that id
// lives elsewhere, this one is a copy, and gets an id of its own.
//
// The file's format, lines of text:
//   weft-run 1
//   id 0123456789abcdef
//   folder /runs/a              where the run was last
//   copied_from fedcba98...     only while the checkpoints of a copy are still to be renamed
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/run/run_folder.h"

namespace weft {

inline constexpr char kRunIdFile[] = "run_id";

std::string NewRunId();

struct RunIdFile {
  std::string id;
  std::string folder;
  std::string copied_from = {};  // empty: nothing is to be renamed
};
std::string RunIdText(const RunIdFile& file);
// Nothing if `text` is of no such file, or of another version.
std::optional<RunIdFile> ParseRunId(absl::string_view text);

// A RunIdentified says which run the folder is of.
struct RunIdentified {
  std::string id;  // empty: none was ever run here, as far as the folder says
  // The id of the run that this is a copy of, where checkpoints here still carry it; else empty.
  std::string copied_from = {};
  std::vector<std::string> notes = {};  // for people
};

// Finds out by looking, and writes only a token that it removes. `previous` is what an older weft
// has left, which kept the id in resolved.yaml alone. A copy has a new id already. REQUIRES: the
// folder's lock is held.
absl::StatusOr<RunIdentified> IdentifyRun(const std::string& run_folder,
                                          const std::optional<PreviousRun>& previous);
// The id that the folder says, of itself; empty: none. For folders that may not be written.
std::string StatedRunId(const std::string& run_folder);

// Writes run_id. A copy's checkpoints in `checkpoints` become its own first, where that folder lies
// in the run folder; returns lines about those that could not.
absl::StatusOr<std::vector<std::string>> KeepRunId(const std::string& run_folder,
                                                   const std::string& checkpoints,
                                                   const RunIdentified& run);

}  // namespace weft
