#include "checkpoint/adoption.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/clean_up.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr char kNewManifest[] = "manifest.json.new";

// The manifest may have another name elsewhere (a hard link), so the file is not written in place.
absl::Status Rename(const std::string& step_folder, const std::string& run_id,
                    const std::string& run_folder) {
  ASSIGN_OR_RETURN(Manifest manifest, CheckManifest(step_folder));
  manifest.run_id = run_id;
  manifest.run_folder = run_folder;
  const std::string text = ManifestText(manifest);
  ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file,
                   DurableFile::Create({step_folder, kNewManifest}, std::ssize(text)));
  RETURN_IF_ERROR(file->Append(text));
  RETURN_IF_ERROR(file->Close());
  const std::string from = absl::StrCat(step_folder, "/", kNewManifest);
  const std::string to = absl::StrCat(step_folder, "/", kManifestFile);
  if (std::rename(from.c_str(), to.c_str()) != 0) return FileError(errno, from, "rename");
  return SyncFolder(step_folder);
}

}  // namespace

Adopted AdoptCheckpoints(const std::string& folder, absl::string_view before,
                         const std::string& run_id, const std::string& run_folder) {
  Adopted done;
  const absl::StatusOr<std::vector<SavedStep>> steps = StepsOfRun(folder, before);
  if (!steps.ok()) {
    done.problems.emplace_back(steps.status().message());
    return done;
  }
  for (const SavedStep& own : *steps) {
    const std::string path = StepFolder(folder, own.step);
    const absl::Status renamed = Rename(path, run_id, run_folder);
    if (renamed.ok()) {
      done.steps.push_back(NameOf(path));
    } else {
      done.problems.push_back(absl::StrCat(NameOf(path), ": ", renamed.message()));
    }
  }
  for (std::string& problem : RemoveStages(folder, before).problems) {
    done.problems.push_back(std::move(problem));
  }
  return done;
}

}  // namespace weft
