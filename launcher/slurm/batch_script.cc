#include "launcher/slurm/batch_script.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/hosts/ssh.h"

namespace weft {
namespace {

constexpr double kEndS = 10;    // TERM, KILL, and what agents clean up
constexpr double kSlackS = 30;  // the controller looks at limits every so often
constexpr int64_t kLeastNoticeS = 10;
constexpr int64_t kMostNoticeS = 65535;  // sbatch(1), --signal
constexpr int64_t kOwnMebibytes = 512;   // cluster.host_library_bytes, and files' pages
constexpr int64_t kMebibyte = 1 << 20;

// A value as sbatch reads it back as one word.
std::string SbatchWord(absl::string_view value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' && c != '\'' &&
           c != '\\' && c != '#';
  });
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

class Options {
 public:
  void Add(absl::string_view name, absl::string_view value) {
    if (!value.empty()) absl::StrAppend(&text_, "#SBATCH --", name, "=", SbatchWord(value), "\n");
  }
  void Add(absl::string_view name) { absl::StrAppend(&text_, "#SBATCH --", name, "\n"); }
  void AddRaw(absl::string_view words) {
    if (!words.empty()) absl::StrAppend(&text_, "#SBATCH ", words, "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// A job that needs each of its nodes is queued again by Slurm itself when one dies. One that may go
// on keeps the others; but where its first node dies, no one is left who could.
bool MayLoseNodes(const JobSpec& job) {
  return job.hosts.spares > 0 ||
         (job.hosts.least_nodes > 0 && job.hosts.least_nodes < job.cluster.nodes);
}

std::string NodesText(const JobSpec& job) {
  const int most = job.cluster.nodes + job.hosts.spares;
  const int least = job.hosts.least_nodes > 0 ? job.hosts.least_nodes : most;
  return least == most ? absl::StrCat(most) : absl::StrCat(least, "-", most);
}

// GPUs are given by the node: what lies beside them is for whoever computes there. CPUs are asked
// for by --mincpus: with --ntasks-per-node and --cpus-per-task Slurm takes MIN of MIN-MAX nodes,
// whatever is free.
void AddNodes(const JobSpec& job, const Plan& plan, Options* options) {
  const int slots = job.cluster.slots_per_node;
  options->Add("nodes", NodesText(job));
  if (job.cluster.device.backend == BackendKind::kCuda) {
    options->Add("gpus-per-node", absl::StrCat(slots));
    options->Add("exclusive");
    options->Add("mem", "0");
    return;
  }
  options->Add("mincpus", absl::StrCat(slots * job.threads_per_worker));
  options->Add("mem", absl::StrCat(NodeMebibytes(job, plan), "M"));
}

std::string OptionsText(const JobSpec& job, const Plan& plan, const BatchWords& words) {
  const SchedulerSpec& site = job.scheduler;
  Options options;
  options.Add("job-name", job.name);
  options.Add("comment", "weft:" + words.run_folder);
  AddNodes(job, plan, &options);
  options.Add("partition", site.partition);
  options.Add("account", site.account);
  options.Add("qos", site.qos);
  options.Add("constraint", site.constraint);
  options.Add("exclude", site.exclude);
  options.Add("reservation", site.reservation);
  options.Add("time", site.time);
  options.Add("dependency", words.after);
  if (!words.tasks.empty()) options.Add("array", absl::StrCat("0-", words.tasks.size() - 1));
  options.Add("chdir", words.run_folder);
  options.Add("output",
              absl::StrCat(words.run_folder, "/", words.tasks.empty() ? kBatchLog : kArrayLog));
  options.Add("open-mode", "append");
  options.Add("requeue");
  if (MayLoseNodes(job)) options.Add("no-kill");
  options.Add("signal",
              absl::StrCat("USR2@", NoticeSeconds(plan.time.total_s(), words.save_s, site.time)));
  options.AddRaw(site.options);
  return options.text();
}

std::string CommandText(const BatchWords& words) {
  return absl::StrCat(
      ShellWord(words.program), " run ",
      words.tasks.empty() ? ShellWord(SubmittedJobPath(words.run_folder)) : "\"$job\"");
}

// RequeueExit is a list of codes and ranges of them (slurm.conf(5)), or "(null)": no number, so
// that neither comparison holds.
constexpr char kEnd[] =
    R"(# 75: to be run again. Whoever of the site and this script does it, it is one of them.
if [ "$status" -eq 75 ]; then
  site=no
  for codes in $(scontrol show config | sed -n 's/^RequeueExit *= *//p' | tr ',' ' '); do
    { [ "${codes%-*}" -le 75 ] && [ "${codes#*-}" -ge 75 ]; } 2>/dev/null && site=yes
  done
  [ "$site" = yes ] || scontrol requeue )";

// Finds a task's own job.
std::string TasksText(const BatchWords& words) {
  if (words.tasks.empty()) return "";
  std::string text = "case \"$SLURM_ARRAY_TASK_ID\" in\n";
  for (size_t task = 0; task < words.tasks.size(); ++task) {
    absl::StrAppend(&text, "  ", task, ") job=", ShellWord(SubmittedJobPath(words.tasks[task])),
                    " ;;\n");
  }
  return absl::StrCat(text,
                      "  *) echo \"weft: task $SLURM_ARRAY_TASK_ID is none of this array\" "
                      ">&2; exit 2 ;;\nesac\n\n");
}

}  // namespace

int64_t LimitSeconds(absl::string_view time) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(time, absl::MaxSplits('-', 1));
  const bool has_days = absl::StrContains(time, '-');
  std::vector<int64_t> numbers;
  for (const absl::string_view part : absl::StrSplit(has_days ? parts.second : time, ':')) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(part, &number)) return 0;
    numbers.push_back(number);
  }
  if (numbers.size() > 3) return 0;
  if (has_days) {
    int64_t days = 0;
    if (!absl::SimpleAtoi(parts.first, &days)) return 0;
    numbers.resize(3, 0);  // hours first
    return ((days * 24 + numbers[0]) * 60 + numbers[1]) * 60 + numbers[2];
  }
  if (numbers.size() == 1) return numbers[0] * 60;
  if (numbers.size() == 2) return numbers[0] * 60 + numbers[1];
  return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2];
}

int64_t NoticeSeconds(double step_s, double save_s, absl::string_view time_limit) {
  const double needed_s = 2 * step_s + 2 * save_s + kEndS + kSlackS;
  auto notice_s = static_cast<int64_t>(std::ceil(std::min<double>(needed_s, kMostNoticeS)));
  const int64_t limit_s = LimitSeconds(time_limit);
  if (limit_s > 0) notice_s = std::min(notice_s, limit_s / 4);
  return std::max(notice_s, kLeastNoticeS);
}

// A save copies what a rank writes: weights and the optimizer's states, of the fullest stage.
int64_t SaveBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const StageMemory& stage : plan.stages) {
    bytes = std::max(bytes, stage.memory.of(MemoryTerm::kWeights) +
                                stage.memory.of(MemoryTerm::kMasterWeights) +
                                stage.memory.of(MemoryTerm::kOptimizer));
  }
  return bytes;
}

int64_t NodeMebibytes(const JobSpec& job, const Plan& plan) {
  const int64_t workers = std::min(plan.layout.world_size(), job.cluster.slots_per_node);
  int64_t each = plan.peak_bytes() + plan.host_bytes() + job.cluster.device.library_bytes;
  if (job.cluster.device.backend == BackendKind::kCpu) each += SaveBytes(plan);
  const int64_t bytes = workers * each + workers * each / 10;
  return (bytes + kMebibyte - 1) / kMebibyte + kOwnMebibytes;
}

std::string SubmittedJobPath(absl::string_view run_folder) {
  return absl::StrCat(run_folder, "/submitted.yaml");
}

std::string BatchScript(const JobSpec& job, const Plan& plan, const BatchWords& words) {
  const std::string program = ShellWord(words.program);
  std::string setup = job.scheduler.setup;
  if (!setup.empty() && setup.back() != '\n') setup += '\n';
  return absl::StrCat(
      "#!/bin/bash\n", OptionsText(job, plan, words), "\n", setup, "if [ ! -x ", program,
      " ]; then\n  echo \"weft: host $(hostname): \"", program,
      "\" is not there; install weft at the same path on each node, or name its folder by "
      "cluster.remote_path\" >&2\n  exit 2\nfi\n\n",
      "# A notice to this shell goes on to weft: INT ends the job, the others save and requeue "
      "it.\n"
      "# bash runs a trap between commands alone, so weft runs beside it.\n",
      "export ", kBatchVariable, "=\"$SLURM_JOB_ID\"\n",
      "trap 'kill -INT \"$weft\"' INT\n"
      "trap 'kill -TERM \"$weft\"' TERM\n"
      "trap 'kill -USR2 \"$weft\"' USR1 USR2\n",
      TasksText(words), CommandText(words),
      " &\n"
      "weft=$!\n"
      "while kill -0 \"$weft\" 2>/dev/null; do wait \"$weft\"; done\n"
      "wait \"$weft\"\n"
      "status=$?\n\n",
      kEnd,
      words.tasks.empty() ? "\"$SLURM_JOB_ID\"" : "\"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\"",
      "\n"
      "fi\n"
      "exit \"$status\"\n");
}

}  // namespace weft
