#include "launcher/run/going_on.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/verify.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/run/run_folder.h"
#include "launcher/run/run_identity.h"
#include "plan/errors.h"
#include "plan/search/describe.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr absl::string_view kDecaySteps = "lr_scheduler.decay_steps";
constexpr size_t kMaxNamed = 3;  // step folders in one message
constexpr size_t kMaxOlder = 2;

// Returns what follows the path in "path size:hash".
std::string Hash(const std::string& fingerprint) {
  return fingerprint.substr(fingerprint.rfind(' ') + 1);
}

std::vector<std::string> Hashes(const std::vector<std::string>& fingerprints) {
  std::vector<std::string> hashes;
  for (const std::string& each : fingerprints) hashes.push_back(Hash(each));
  return hashes;
}

// Files whose content is not what the run before saw, at the same path.
std::vector<std::string> ChangedFiles(const std::vector<std::string>& before,
                                      const std::vector<std::string>& now) {
  std::vector<std::string> changed;
  for (const std::string& file : now) {
    const std::string path = file.substr(0, file.rfind(' '));
    for (const std::string& old : before) {
      if (old.substr(0, old.rfind(' ')) == path && old != file) {
        changed.push_back(
            absl::StrCat("data: ", path, ": its content changed: ", Hash(old), " -> ", Hash(file)));
      }
    }
  }
  return changed;
}

std::string ChangeText(const SpecChange& change) {
  return absl::StrCat(change.key, ": ", change.before, " -> ", change.after);
}

// Differences collects what is not as it was, sorted into what is taken and what is not.
struct Differences {
  const std::vector<std::string>& accept;  // keys
  std::vector<std::string> notes;          // of execution
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
  std::vector<std::string> acceptable;  // keys of `refused` that could be in `accept`
  bool only_acceptable = true;

  void AddMathematics(const std::string& key, const std::string& line) {
    if (std::find(accept.begin(), accept.end(), key) != accept.end()) {
      accepted.push_back(line);
      return;
    }
    refused.push_back(line);
    if (IsAcceptable(key)) {
      acceptable.push_back(key);
    } else {
      only_acceptable = false;
    }
  }
};

absl::Status Refused(const JobSpec& job, const Differences& found) {
  std::string cure;
  if (found.only_acceptable) {
    absl::StrAppend(&cure, ", take them with --accept-changes ",
                    absl::StrJoin(found.acceptable, ","), " (the optimizer's states go on)");
  }
  const auto steps = StepsIn(CheckpointFolder(job));
  if (steps.ok() && !steps->empty()) {
    absl::StrAppend(&cure, ", give the run another job.name (and model.init_from: ",
                    StepFolder(CheckpointFolder(job), steps->front()),
                    " to start from its weights)");
  } else {
    cure += ", give the run another job.name";
  }
  return absl::InvalidArgumentError(
      absl::StrCat("this is another run than the one in ", PathsOf(job).folder, ":\n  ",
                   absl::StrJoin(found.refused, "\n  "), "\nundo these changes", cure,
                   ", or start anew with --fresh (the old run is moved aside)"));
}

// Runs of before windows were trained say none of theirs, which hid nothing; a llama with one is
// called a mistral since.
bool IsWindowThatHidesNothing(const SpecChange& change, const JobSpec& job) {
  if (job.model.window == 0 || job.model.slides_over(job.training.seq_len)) return false;
  const bool is_new = change.key == "model.sliding_window" || change.key == "model.layer_types";
  return (is_new && change.before.empty()) ||
         (change.key == "model.model_type" && change.before == "llama" &&
          change.after == "mistral");
}

// Changes since the run was run before.
void Compare(const JobSpec& job, const std::vector<std::string>& data, const PreviousRun& previous,
             Differences& found) {
  for (const std::string& file : ChangedFiles(previous.record.data, data)) {
    found.AddMathematics("data", file);
  }
  const bool same_content = Hashes(previous.record.data) == Hashes(data);
  for (const SpecChange& change : Changes(previous.job, job)) {
    const bool moved =
        (change.key == "data.train" || change.key == "data.valid") && same_content && !data.empty();
    std::string line = ChangeText(change);
    if (change.key == kDecaySteps && job.lr_scheduler.decay_steps == job.training.steps) {
      absl::StrAppend(&line, " (it follows training.steps unless it is given; to go on along the ",
                      "same curve, set ", kDecaySteps, ": ", change.before, ")");
    }
    if (change.mathematics && !moved && !IsWindowThatHidesNothing(change, job)) {
      found.AddMathematics(change.key, line);
    } else {
      found.notes.push_back(line);
    }
  }
  if (previous.record.weft_version != Version()) {
    found.notes.push_back(absl::StrCat("weft: ", previous.record.weft_version, " -> ", Version()));
  }
}

// An Inventory says who has what in a checkpoint folder, as seen by one run.
struct Inventory {
  std::string run_id;            // empty: the run has nothing here, nor is it known otherwise
  std::vector<SavedStep> own;    // newest first
  std::vector<int64_t> unnamed;  // of manifests that name no run; newest first, as the next
  std::vector<int64_t> others;
  std::vector<int64_t> strangers;  // of no manifest at all
};

absl::StatusOr<Inventory> Look(const JobSpec& job, const std::optional<PreviousRun>& previous,
                               const std::string& run_id) {
  Inventory seen;
  seen.run_id = run_id;
  const std::string folder = CheckpointFolder(job);
  if (seen.run_id.empty() && previous) seen.run_id = previous->record.run_id;
  if (seen.run_id.empty()) {
    ASSIGN_OR_RETURN(seen.run_id, RunThatSaved(folder, PathsOf(job).folder));
  }
  ASSIGN_OR_RETURN(seen.own, StepsOfRun(folder, seen.run_id));
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(folder));
  for (const int64_t step : steps) {
    const std::optional<Owner> owner = OwnerOf(StepFolder(folder, step));
    if (!owner) {
      seen.strangers.push_back(step);
    } else if (owner->run_id.empty()) {
      seen.unnamed.push_back(step);
    } else if (owner->run_id != seen.run_id) {
      seen.others.push_back(step);
    }
  }
  return seen;
}

// "step-9, step-7, step-5 and 2 more"
std::string NamesOf(const std::vector<int64_t>& steps) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(steps.size(), kMaxNamed); ++i) {
    names.push_back(absl::StrCat("step-", steps[i]));
  }
  std::string text = absl::StrJoin(names, ", ");
  if (steps.size() > kMaxNamed) absl::StrAppend(&text, " and ", steps.size() - kMaxNamed, " more");
  return text;
}

// A run that has nothing in a folder in which others have something does not begin there.
absl::Status CheckMayBegin(const JobSpec& job, const Inventory& seen) {
  const std::string folder = CheckpointFolder(job);
  const std::vector<int64_t>& foreign = !seen.others.empty()    ? seen.others
                                        : !seen.unnamed.empty() ? seen.unnamed
                                                                : seen.strangers;
  if (foreign.empty()) return absl::OkStatus();
  const std::string newest = StepFolder(folder, foreign.front());
  std::string cure = "; give this run a checkpoint.folder of its own";
  if (&foreign != &seen.strangers) {
    absl::StrAppend(&cure, ", or, to start from those weights, set model.init_from: ", newest);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint.folder: ", folder, " holds ", NamesOf(foreign), ", of which the newest is ",
      OwnerText(OwnerOf(newest)), "; this run is ", PathsOf(job).folder, cure));
}

absl::Status NothingUsable(const JobSpec& job, const std::optional<PreviousRun>& previous,
                           const std::vector<std::string>& damaged,
                           std::optional<int64_t> saved_step) {
  const std::string folder = CheckpointFolder(job);
  std::string found =
      damaged.empty() ? "no checkpoint of the run is there" : absl::StrJoin(damaged, "; ");
  if (previous && CheckpointFolder(previous->job) != folder) {
    absl::StrAppend(&found, "; checkpoint.folder was ", CheckpointFolder(previous->job));
  }
  const std::string what = saved_step ? absl::StrCat("step ", *saved_step) : "a step";
  return absl::InvalidArgumentError(
      absl::StrCat(what, " was saved, nothing usable is left in ", folder, " (", found,
                   "); restore it, or start anew with --fresh, which moves the old run aside"));
}

// The job against what its checkpoint says it is of, where resolved.yaml has gone.
void CompareWithManifest(const JobSpec& job, const FoundCheckpoint& checkpoint, Differences& found,
                         std::vector<std::string>& accepted_before) {
  std::map<std::string, std::string> stated;
  for (const auto& [fact, value] : checkpoint.manifest.facts) {
    absl::string_view key = fact;
    if (absl::ConsumePrefix(&key, kMathematicsFact)) stated[std::string(key)] = value;
    if (absl::StartsWith(fact, kAcceptedFact)) accepted_before.push_back(value);
  }
  for (const SpecChange& change : ChangedMathematics(stated, job)) {
    if (!IsWindowThatHidesNothing(change, job)) {
      found.AddMathematics(change.key, ChangeText(change));
    }
  }
  // A manifest of an older weft states the model alone.
  const std::optional<ModelShape>& model = checkpoint.manifest.model;
  if (stated.empty() && model && *model != job.model) {
    found.AddMathematics("model", absl::StrCat("model: ", checkpoint.path, " is of another one"));
  }
}

// The next ones in `steps` behind `newest`, as far as a look tells.
void AddOlder(const std::string& folder, const std::vector<int64_t>& steps, int64_t newest,
              std::vector<OlderCheckpoint>& older) {
  const auto found = std::find(steps.begin(), steps.end(), newest);
  for (auto step = found; step != steps.end() && older.size() < kMaxOlder; ++step) {
    const std::string path = StepFolder(folder, *step);
    if (*step < newest && CheckManifest(path).ok()) older.push_back({*step, path});
  }
}

// Bytes of the files in the run's folders there.
int64_t OwnBytes(const std::string& folder, const std::string& run_id) {
  int64_t bytes = 0;
  std::error_code error;
  const auto steps = StepsOfRun(folder, run_id);
  if (!steps.ok()) return 0;
  for (const SavedStep& own : *steps) {
    for (const auto& file :
         std::filesystem::directory_iterator(StepFolder(folder, own.step), error)) {
      const auto size = file.file_size(error);
      if (!error) bytes += static_cast<int64_t>(size);
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<Continuation> Continue(const JobSpec& job, const std::vector<std::string>& data,
                                      const std::optional<PreviousRun>& previous,
                                      std::optional<int64_t> saved_step,
                                      const std::vector<std::string>& accept,
                                      const std::string& run_id) {
  Continuation result;
  Differences different{
      .accept = accept, .notes = {}, .accepted = {}, .refused = {}, .acceptable = {}};
  if (previous) Compare(job, data, *previous, different);
  if (!different.refused.empty()) return Refused(job, different);
  result.notes = different.notes;
  ASSIGN_OR_RETURN(const Inventory seen, Look(job, previous, run_id));
  result.run = {seen.run_id.empty() ? NewRunId() : seen.run_id, Mathematics(job), {}};
  if (previous) {
    result.last_generation = previous->record.generation;
    result.run.accepted = previous->record.accepted;
  }
  std::vector<int64_t> steps;
  for (const SavedStep& own : seen.own) {
    steps.push_back(own.step);
    result.last_generation = std::max(result.last_generation, own.generation);
  }
  // Manifests of an older weft name no run: they lie where the run's own do.
  const std::string folder = CheckpointFolder(job);
  if (previous || IsWithin(folder, PathsOf(job).folder)) {
    steps.insert(steps.end(), seen.unnamed.begin(), seen.unnamed.end());
  }
  const bool begins = job.checkpoint.resume == ResumeMode::kNone;
  if (steps.empty() && (begins || !saved_step)) RETURN_IF_ERROR(CheckMayBegin(job, seen));
  for (const auto* foreign : {&seen.others, &seen.strangers}) {
    for (const int64_t step : *foreign) {
      result.passed_over.push_back(
          absl::StrCat("step-", step, " is ", OwnerText(OwnerOf(StepFolder(folder, step)))));
    }
  }
  if (begins) return result;
  ASSIGN_OR_RETURN(const FoundCheckpoint found, FirstThatVerifies(folder, steps));
  result.damaged = found.refused;
  if (found.path.empty()) {
    if (steps.empty() && !saved_step) return result;
    std::vector<std::string> gone = found.refused;
    gone.insert(gone.end(), result.passed_over.begin(), result.passed_over.end());
    return NothingUsable(job, previous, gone, saved_step);
  }
  if (!previous) CompareWithManifest(job, found, different, result.run.accepted);
  if (!different.refused.empty()) return Refused(job, different);
  for (const std::string& change : different.accepted) {
    result.run.accepted.push_back(absl::StrCat("after step ", found.manifest.step, ": ", change));
    result.notes.push_back(absl::StrCat("accepted ", result.run.accepted.back()));
  }
  result.load_checkpoint = found.path;
  result.after_step = found.manifest.step;
  AddOlder(folder, steps, found.manifest.step, result.older);
  return result;
}

std::optional<int64_t> LastSavedStep(const RunPaths& paths, LinesLeftOut* left_out) {
  constexpr int64_t kTailBytes = int64_t{4} << 20;
  std::optional<int64_t> saved;
  *left_out = ForEachJsonLine(LinesOfRun(paths.events()), {.most_bytes = kTailBytes},
                              [&saved](const nlohmann::ordered_json& event) {
                                const auto name = event.find("event"), step = event.find("step");
                                const bool is_commit = name != event.end() && *name == "committed";
                                if (is_commit && step != event.end() && step->is_number_integer())
                                  saved = step->get<int64_t>();
                              });
  return saved;
}

absl::Status CheckRoom(const JobSpec& job, const RunIdentity& run, int64_t checkpoint_bytes,
                       std::string* note) {
  const std::string folder = CheckpointFolder(job);
  struct statvfs disk = {};
  // Some file systems do not know their size.
  if (statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) return absl::OkStatus();
  const auto free_bytes = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  const int64_t interval = job.checkpoint.interval.value_or(0);
  const int64_t saves = interval > 0 ? (job.training.steps + interval - 1) / interval : 1;
  const int64_t wanted = std::min<int64_t>(saves, job.checkpoint.keep_latest_k + 1);
  const int64_t room = free_bytes + OwnBytes(folder, run.id);
  if (room >= wanted * checkpoint_bytes) return absl::OkStatus();
  const std::string text = absl::StrCat(
      "checkpoint.folder: ", folder, " has room for ", BytesText(room), ", but ", wanted,
      wanted == 1 ? " checkpoint" : " checkpoints", " of ", BytesText(checkpoint_bytes),
      " (checkpoint.keep_latest_k and the one that is written) need ",
      BytesText(wanted * checkpoint_bytes), "; make room, lower checkpoint.keep_latest_k, ",
      saves > 1 ? "set checkpoint.interval to 0 (one checkpoint, at the end), " : "",
      "or name a folder on another disk");
  if (room < std::min<int64_t>(wanted, 2) * checkpoint_bytes) {
    return absl::FailedPreconditionError(text);
  }
  *note = text;
  return absl::OkStatus();
}

}  // namespace weft
