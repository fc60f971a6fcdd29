// Folders inside a checkpoint folder: how they are named, and whose they are. Several runs and
// other programs may keep theirs in one place, so nothing is replaced, moved or removed unless it
// says that it is this run's:
//   step-<N>/                    a committed checkpoint, which its manifest says
//   .stage.<run>.<g>.<N>/        one that generation g of the run is writing, or could not publish
//   .old.<run>.<g>.<N>[.<i>]/    one that is being removed
// Names of the last two kinds are weft's alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

std::string StageFolder(const std::string& folder, absl::string_view run_id, int64_t generation,
                        int64_t step);
std::string StepFolder(const std::string& folder, int64_t step);
std::string ShardFileName(int rank);
// The last part of a path.
std::string NameOf(const std::string& path);
// N of "step-<N>" as StepFolder writes it; nullopt for other names.
std::optional<int64_t> StepOf(const std::string& name);

// Names in `folder`, unordered; none if there is no such folder.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder);
// Steps that have a folder in `folder`, whoever's it is, newest first.
absl::StatusOr<std::vector<int64_t>> StepsIn(const std::string& folder);

// Says whether the folder is a committed checkpoint's, by its manifest; nothing is verified.
bool IsStepFolder(const std::string& folder);

// The run that saved a checkpoint, as its manifest's first lines say.
struct Owner {
  std::string run_id;      // empty: a manifest of format 2 or 3, which names no run
  std::string run_folder;  // for people
  int64_t generation = 0;
};
// Reads no more than those lines, and takes their word: the rest may be damaged, which does not
// make the folder somebody else's. nullopt: no manifest of weft's, so a stranger's folder.
std::optional<Owner> OwnerOf(const std::string& step_folder);
// "another run's (/runs/b)", "another program's (it holds no manifest.json)", for messages.
std::string OwnerText(const std::optional<Owner>& owner);

// A step folder of a run.
struct SavedStep {
  int64_t generation = 0;
  int64_t step = 0;
};
// Returns the steps of the run, newest first: a generation that began anew is newer than higher
// steps of those before it. None for an empty run_id.
absl::StatusOr<std::vector<SavedStep>> StepsOfRun(const std::string& folder,
                                                  absl::string_view run_id);

// A folder whose name says that it is staged, or about to be removed.
struct PassingFolder {
  std::string name;
  bool is_stage = false;
  int64_t generation = 0;
  int64_t step = 0;
};
// Returns the passing folders of the run; none for an empty run_id.
absl::StatusOr<std::vector<PassingFolder>> PassingFolders(const std::string& folder,
                                                          absl::string_view run_id);
// A name for a step folder of the run on its way out that is not taken yet.
std::string OldFolder(const std::string& folder, absl::string_view run_id, int64_t generation,
                      int64_t step);

}  // namespace weft
