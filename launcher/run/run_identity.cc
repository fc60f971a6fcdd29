#include "launcher/run/run_identity.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "checkpoint/adoption.h"
#include "launcher/machine/run_launcher.h"
#include "plan/errors.h"
#include "process/folder_entry.h"
#include "process/folder_token.h"
#include "process/run_files.h"

namespace weft {
namespace {

constexpr char kFirstLine[] = "weft-run 1";
constexpr size_t kIdDigits = 16;
constexpr size_t kMostBytes = 16 << 10;  // two ids and a path

std::optional<RunIdFile> ReadRunId(const std::string& run_folder) {
  const OpenedEntry file = OpenEntry({run_folder, kRunIdFile}, EntryUse::kRead);
  if (!file.ok()) return std::nullopt;
  std::string text(kMostBytes, '\0');
  const ssize_t got = read(file.descriptor, text.data(), text.size());
  close(file.descriptor);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return ParseRunId(text);
}

bool IsRunId(absl::string_view id) {
  return id.size() == kIdDigits && std::all_of(id.begin(), id.end(), absl::ascii_isxdigit);
}

// Whether two paths lead to one folder is seen by what is in it: numbers of devices differ where a
// file system is mounted twice, and may be the same where it is not.
absl::StatusOr<bool> IsSameFolder(const std::string& here, const std::string& there) {
  const std::string token = NewToken();
  RETURN_IF_ERROR(WriteToken(here, token));
  const bool same = HoldsToken(there, token);
  RemoveToken(here, token);
  return same;
}

absl::Status WriteRunId(const std::string& run_folder, const RunIdFile& file) {
  return WriteWhole(run_folder + "/" + kRunIdFile, RunIdText(file));
}

// Says whether a run with this id stands there, or something that this user may not see, and so has
// not moved.
bool StandsThere(const std::string& folder, const std::string& id) {
  for (const char* const file : {kRunIdFile, "resolved.yaml"}) {
    const OpenedEntry entry = OpenEntry({folder, file}, EntryUse::kRead);
    if (entry.ok()) {
      close(entry.descriptor);
      return StatedRunId(folder) == id;
    }
    if (entry.error != ENOENT && entry.error != ENOTDIR) return true;
  }
  return false;
}

// The folder's lock is ours, so whoever lives with its id has another folder, unless this file
// system has no locks: then that one's is looked at, from where it sees it.
absl::Status CheckIsElsewhere(const LivingLauncher& holder, const std::string& run_folder,
                              const std::string& was) {
  if (holder.pid == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool same,
                   IsSameFolder(run_folder, absl::StrCat("/proc/", holder.pid, "/root", was)));
  if (!same) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(run_folder, " is in use by another weft (pid ", holder.pid,
                   "), though its file system has no locks; use weft attach or weft stop"));
}

RunIdentified CopyOf(const std::string& id, const std::string& of) {
  RunIdentified copy{.id = NewRunId(), .copied_from = id, .notes = {}};
  copy.notes.push_back(absl::StrCat("copy: this folder is a copy of the run in ", of,
                                    ", which it leaves alone; it is run ", copy.id,
                                    " from now on"));
  return copy;
}

}  // namespace

std::string NewRunId() {
  uint64_t id = 0;
  CHECK(getrandom(&id, sizeof(id), 0) == sizeof(id));
  return absl::StrCat(absl::Hex(id, absl::kZeroPad16));
}

std::string RunIdText(const RunIdFile& file) {
  std::string text = absl::StrCat(kFirstLine, "\nid ", file.id, "\nfolder ", file.folder, "\n");
  if (!file.copied_from.empty()) absl::StrAppend(&text, "copied_from ", file.copied_from, "\n");
  return text;
}

std::optional<RunIdFile> ParseRunId(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.empty() || lines[0] != kFirstLine) return std::nullopt;
  RunIdFile file;
  for (absl::string_view line : lines) {
    if (absl::ConsumePrefix(&line, "id ")) file.id = std::string(line);
    if (absl::ConsumePrefix(&line, "folder ")) file.folder = std::string(line);
    if (absl::ConsumePrefix(&line, "copied_from ")) file.copied_from = std::string(line);
  }
  const bool is_whole = IsRunId(file.id) && !file.folder.empty() &&
                        (file.copied_from.empty() || IsRunId(file.copied_from));
  return is_whole ? std::optional(file) : std::nullopt;
}

std::string StatedRunId(const std::string& run_folder) {
  if (const std::optional<RunIdFile> file = ReadRunId(run_folder)) return file->id;
  const auto previous = ReadPrevious({.folder = run_folder});
  return previous.ok() && *previous ? (*previous)->record.run_id : "";
}

absl::StatusOr<RunIdentified> IdentifyRun(const std::string& run_folder,
                                          const std::optional<PreviousRun>& previous) {
  const std::optional<RunIdFile> file = ReadRunId(run_folder);
  const std::string id = file ? file->id : previous ? previous->record.run_id : "";
  if (id.empty()) return RunIdentified{};
  if (file && !file->copied_from.empty()) return RunIdentified{id, file->copied_from, {}};
  const std::string was = file ? file->folder : PathsOf(previous->job).folder;
  if (was != run_folder && StandsThere(was, id)) {
    ASSIGN_OR_RETURN(const bool same, IsSameFolder(run_folder, was));
    if (!same) return CopyOf(id, was);
  }
  const std::optional<LivingLauncher> holder = LivingLauncherOf(id);
  if (!holder) return RunIdentified{id, "", {}};
  RETURN_IF_ERROR(CheckIsElsewhere(*holder, run_folder, was));
  return CopyOf(id,
                holder->pid > 0
                    ? absl::StrCat(was, " as process ", holder->pid, ", which holds it, sees it")
                    : absl::StrCat(was, " of a container that shares ", holder->folder));
}

absl::StatusOr<std::vector<std::string>> KeepRunId(const std::string& run_folder,
                                                   const std::string& checkpoints,
                                                   const RunIdentified& run) {
  std::vector<std::string> problems;
  if (!run.copied_from.empty()) {
    // A crash in between is followed by the same with the same id.
    RETURN_IF_ERROR(WriteRunId(run_folder, {run.id, run_folder, run.copied_from}));
    if (IsWithin(checkpoints, run_folder)) {
      problems = AdoptCheckpoints(checkpoints, run.copied_from, run.id, run_folder).problems;
    }
  }
  const std::optional<RunIdFile> stands = ReadRunId(run_folder);
  const RunIdFile file{run.id, run_folder, ""};
  if (stands && RunIdText(*stands) == RunIdText(file)) return problems;
  // The id of a run that is no copy stands in its manifests and in resolved.yaml, too.
  const absl::Status written = WriteRunId(run_folder, file);
  if (!written.ok() && !run.copied_from.empty()) return written;
  if (!written.ok()) problems.emplace_back(written.message());
  return problems;
}

}  // namespace weft
