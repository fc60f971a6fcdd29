#include "checkpoint/clean_up.h"

#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/folders.h"
#include "checkpoint/verify.h"
#include "plan/errors.h"
#include "process/failpoint.h"

namespace weft {
namespace {

void RemoveAll(const std::string& path, CleanedUp& done) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) {
    done.problems.emplace_back(FileError(error.value(), path, "remove").message());
  }
}

void RemovePassing(const std::string& folder, const CleanUpRun& run, CleanedUp& done) {
  const auto passing = PassingFolders(folder, run.run_id);
  if (!passing.ok()) {
    done.problems.emplace_back(passing.status().message());
    return;
  }
  for (const PassingFolder& each : *passing) {
    const bool in_use =
        each.is_stage && std::tie(each.generation, each.step) > std::tie(run.generation, run.step);
    if (!in_use) RemoveAll(absl::StrCat(folder, "/", each.name), done);
  }
}

void RemoveStep(const std::string& folder, absl::string_view run_id, const SavedStep& own,
                CleanedUp& done) {
  const std::string path = StepFolder(folder, own.step);
  const std::string old = OldFolder(folder, run_id, own.generation, own.step);
  if (rename(path.c_str(), old.c_str()) != 0) {
    done.problems.emplace_back(FileError(errno, path, "rename").message());
    return;
  }
  done.removed.push_back(NameOf(path));
  Failpoint("clean_up.renamed");
  RemoveAll(old, done);
}

}  // namespace

CleanedUp CleanUp(const std::string& folder, const CleanUpRun& run, int keep) {
  CHECK(keep >= 2);
  CleanedUp done;
  const auto steps = StepsOfRun(folder, run.run_id);
  if (!steps.ok()) {
    done.problems.emplace_back(steps.status().message());
    return done;
  }
  if (!steps->empty() && steps->front().generation > run.generation) {
    done.stopped = true;
    done.problems.push_back(absl::StrCat("generation ", run.generation, " cleans nothing up: step-",
                                         steps->front().step, " is of generation ",
                                         steps->front().generation, " of the same run"));
    return done;
  }
  Failpoint("clean_up.begin");
  RemovePassing(folder, run, done);
  int kept = 0;
  for (const SavedStep& own : *steps) {
    if (kept < keep) {
      if (CheckManifest(StepFolder(folder, own.step)).ok()) ++kept;
      continue;
    }
    RemoveStep(folder, run.run_id, own, done);
  }
  if (done.removed.empty()) return done;
  Failpoint("clean_up.removed");
  const absl::Status synced = SyncFolder(folder);
  if (!synced.ok()) done.problems.emplace_back(synced.message());
  return done;
}

CleanedUp RemoveStages(const std::string& folder, absl::string_view run_id) {
  CleanedUp done;
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  RemovePassing(folder, {std::string(run_id), kAll, kAll}, done);
  return done;
}

absl::StatusOr<std::string> MoveCheckpointsAside(const std::string& folder,
                                                 absl::string_view run_id) {
  ASSIGN_OR_RETURN(const std::vector<SavedStep> steps, StepsOfRun(folder, run_id));
  if (steps.empty()) return std::string();
  constexpr int kMaxNames = 100000;
  std::string aside;
  std::error_code error;
  for (int n = 1; n < kMaxNames; ++n) {
    aside = absl::StrCat(folder, "/old-", n);
    if (!std::filesystem::exists(aside, error)) break;
  }
  RETURN_IF_ERROR(MakeFolders(aside));
  for (const SavedStep& own : steps) {
    const std::string path = StepFolder(folder, own.step);
    const std::string to = StepFolder(aside, own.step);
    if (rename(path.c_str(), to.c_str()) != 0) return FileError(errno, path, "rename");
  }
  RETURN_IF_ERROR(SyncFolder(aside));
  RETURN_IF_ERROR(SyncFolder(folder));
  return aside;
}

}  // namespace weft
