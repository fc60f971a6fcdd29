#include "launcher/commands/slurm_verbs.h"

#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/commands/commands.h"
#include "launcher/machine/log_tail.h"
#include "launcher/service/text_table.h"
#include "launcher/slurm/array.h"
#include "launcher/slurm/run_record.h"
#include "launcher/slurm/slurm_program.h"
#include "plan/errors.h"
#include "process/older_file.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr int kPatienceMs = 90000;
constexpr int kStateMs = 5000;  // files say the rest, whether or not Slurm answers
constexpr int kPollMs = 500;    // a controller has other things to do
constexpr int kColumns = 7;

// The step of the last line in the run's metrics is returned; empty: none was done yet.
std::string LastStepOf(const std::string& run_folder) {
  constexpr int64_t kTailBytes = 8192;
  const std::string tail = ReadEnd({run_folder, "metrics.jsonl"}, kTailBytes);
  const std::string line = LastLines(tail, 1, kTailBytes);
  const nlohmann::json json = ParseJson(line).value_or(nullptr);
  const bool has_step = json.is_object() && json.contains("step") && json["step"].is_number();
  return has_step ? absl::StrCat(json["step"].get<int64_t>()) : "";
}

// The run folder of a line of squeue's: what its comment says, or of an array's task the folder in
// that one.
std::string RunFolderOf(const std::string& job_id, const std::string& said) {
  const size_t mark = job_id.find('_');
  int task = 0;
  if (mark == std::string::npos || !absl::SimpleAtoi(job_id.substr(mark + 1), &task)) return said;
  return TaskFolder(said, task);
}

}  // namespace

std::string LocalTimeText(int64_t unix_s) {
  return absl::FormatTime("%H:%M", absl::FromUnixSeconds(unix_s), absl::LocalTimeZone());
}

std::vector<std::string> LeftOutLines(const std::string& run_folder) {
  const std::optional<SlurmRunRecord> record = ReadSlurmRun(run_folder);
  std::vector<std::string> lines;
  if (!record) return lines;
  const int64_t now_s = absl::ToUnixSeconds(absl::Now());
  for (const FailedHost& host : record->failed_hosts) {
    const int64_t until_s = LeftOutUntil(host, now_s);
    if (until_s > 0) lines.push_back(LeftOutLine(host, LocalTimeText(until_s)));
  }
  return lines;
}

std::string SlurmStateOf(const std::string& run_folder) {
  const std::optional<SlurmRunRecord> record = ReadSlurmRun(run_folder);
  if (!record) return "";
  const absl::StatusOr<SlurmJob> job = AskForJob(record->job_id, kStateMs);
  if (!job.ok()) return "";
  const bool has_reason = !job->reason.empty() && job->reason != "None";
  return absl::StrCat("job ", job->id, " is ", job->state, has_reason ? ": " : "",
                      has_reason ? ReasonMeaning(job->reason) : "");
}

std::optional<SlurmJob> SlurmJobOf(const std::string& run_folder) {
  const std::optional<SlurmRunRecord> record = ReadSlurmRun(run_folder);
  if (!record) return std::nullopt;
  const absl::StatusOr<SlurmJob> job = AskForJob(record->job_id);
  if (!job.ok() || !IsUnderWay(*job)) return std::nullopt;
  return *job;
}

// INT to the batch script means that a person has asked: nobody requeues the job then.
int StopSlurmJob(const SlurmJob& job, bool now) {
  const bool runs = job.state == "RUNNING" && !now;
  std::vector<std::string> argv = {"scancel"};
  if (runs) argv.insert(argv.end(), {"--signal=INT", "--batch"});
  argv.push_back(job.id);
  const absl::StatusOr<SlurmAnswer> asked = AskSlurm(argv);
  if (!asked.ok()) return Fail(asked.status());
  if (asked->exit_code != 0) {
    return Fail(absl::UnavailableError(
        absl::StrCat("Slurm does not end job ", job.id, ": ", LastLines(asked->err, 1, 500))));
  }
  for (int waited = 0; waited < kPatienceMs; waited += kPollMs) {
    const absl::StatusOr<SlurmJob> seen = AskForJob(job.id);
    if (absl::IsNotFound(seen.status()) || (seen.ok() && !IsUnderWay(*seen))) {
      std::cout << (runs ? "stopped and saved; weft submit resumes\n" : "cancelled\n");
      return kExitOk;
    }
    usleep(kPollMs * 1000);
  }
  return Fail(absl::UnavailableError(
      absl::StrCat("asked Slurm job ", job.id, " to stop, but it has not ended after ",
                   kPatienceMs / 1000, " s; weft stop --now ends it")));
}

absl::StatusOr<std::string> SlurmJobsTable(const SlurmJobsWish& wish, int width) {
  std::vector<std::string> argv = {"squeue", wish.owner.empty() ? "--me" : "--user=" + wish.owner,
                                   "--noheader", "--sort=-i", "--format=%i|%T|%r|%S|%D|%P|%k"};
  if (wish.all) argv.push_back("--states=all");
  ASSIGN_OR_RETURN(const SlurmAnswer answer, AskSlurm(argv));
  if (answer.exit_code != 0) {
    return absl::UnavailableError(absl::StrCat("squeue: ", LastLines(answer.err, 1, 500)));
  }
  std::vector<std::vector<std::string>> rows;
  std::string left_out;
  for (const absl::string_view line : absl::StrSplit(answer.out, '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, absl::MaxSplits('|', kColumns - 1));
    if (cells.size() != kColumns || !absl::StartsWith(cells[6], "weft:")) continue;
    if (std::ssize(rows) == wish.most) break;
    const std::string run =
        RunFolderOf(cells[0], std::string(absl::StripPrefix(cells[6], "weft:")));
    rows.push_back({cells[0], cells[1], LastStepOf(run), cells[4], cells[5],
                    cells[3] == "N/A" ? "" : cells[3], cells[2] == "None" ? "" : cells[2], run});
    for (const std::string& each : LeftOutLines(run)) {
      absl::StrAppend(&left_out, cells[0], ": ", each, "\n");
    }
  }
  if (rows.empty()) {
    return wish.all ? "Slurm remembers no jobs of weft's\n"
                    : "no jobs of weft's wait or run in Slurm; --all lists those that did\n";
  }
  const std::vector<TableColumn> columns = {{"JOB", 20},       {"STATE", 14},        {"STEP", 12},
                                            {"NODES", 7},      {"PARTITION", 14, 6}, {"START", 19},
                                            {"REASON", 24, 8}, {"RUN", 200, 10}};
  return absl::StrCat(TableText(columns, rows, width), left_out);
}

}  // namespace weft
