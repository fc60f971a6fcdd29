#include "plan/spec/checkpoint_folder.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weft {

std::string CheckpointFolder(const CheckpointSpec& checkpoint, const std::string& run_folder) {
  const std::string path = absl::StartsWith(checkpoint.folder, "/")
                               ? checkpoint.folder
                               : absl::StrCat(run_folder, "/", checkpoint.folder);
  std::vector<absl::string_view> names;
  for (const absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (name == "..") {
      if (!names.empty()) names.pop_back();
    } else if (name != ".") {
      names.push_back(name);
    }
  }
  return absl::StrCat("/", absl::StrJoin(names, "/"));
}

}  // namespace weft
