#include "launcher/commands/submit_array.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/commands/commands.h"
#include "launcher/hosts/ssh.h"
#include "launcher/slurm/array.h"
#include "launcher/slurm/batch_script.h"
#include "launcher/slurm/run_record.h"
#include "launcher/slurm/sbatch.h"
#include "plan/errors.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

struct Task {
  Sets sets;  // its own
  PreparedJob prepared;
};

// Every task that cannot run is said; *exit_code is the first one's.
std::optional<std::vector<Task>> PrepareTasks(const ArraySubmission& array, const PreparedJob& base,
                                              const std::vector<Sets>& lists, int* exit_code) {
  std::vector<Task> tasks;
  const JobSpec& job = base.file.job;
  for (size_t i = 0; i < lists.size(); ++i) {
    Sets sets = TaskSets(lists[i], job.output_dir, job.name, static_cast<int>(i));
    JobFileOptions options = array.options;
    options.sets.insert(options.sets.end(), sets.begin(), sets.end());
    int code = kExitOk;
    absl::StatusOr<PreparedJob> prepared = PrepareJob(
        array.path, options, [](const JobSpec&) { return absl::OkStatus(); },
        [](const JobSpec&, const Plan&) { return absl::OkStatus(); }, &code);
    if (!prepared.ok()) {
      std::cerr << "weft: that is task " << i << ": " << absl::StrJoin(lists[i], ", ") << "\n";
      if (*exit_code == kExitOk) *exit_code = code;
      continue;
    }
    tasks.push_back({std::move(sets), *std::move(prepared)});
  }
  if (*exit_code != kExitOk) return std::nullopt;
  return tasks;
}

bool HaveTokens(const std::vector<Task>& tasks) {
  return std::all_of(tasks.begin(), tasks.end(),
                     [](const Task& task) { return task.prepared.file.has_tokens; });
}

// The nodes have to be enough for whichever task comes there. It bears the array's name.
PreparedJob Largest(const std::vector<Task>& tasks, const std::string& name) {
  const auto mebibytes = [](const Task& task) {
    return NodeMebibytes(task.prepared.file.job, task.prepared.plan);
  };
  PreparedJob largest =
      std::max_element(tasks.begin(), tasks.end(), [&](const Task& a, const Task& b) {
        return mebibytes(a) < mebibytes(b);
      })->prepared;
  largest.file.job.name = name;
  return largest;
}

// Opens the run of each task, as a single job's is opened.
absl::Status OpenTasks(const ArraySubmission& array, const std::vector<Task>& tasks) {
  for (const Task& task : tasks) {
    int64_t after_step = 0;
    RETURN_IF_ERROR(OpenForSlurm(task.prepared, array.options.fresh, array.accept, &after_step));
  }
  return absl::OkStatus();
}

void Say(const ArraySubmission& array, const std::vector<Task>& tasks, const std::string& id,
         const std::string& folder) {
  std::cout << "slurm job " << id << ": an array of " << tasks.size() << " runs in " << folder
            << "\n";
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Sets lists(tasks[i].sets.begin(), tasks[i].sets.end() - 2);  // without its folder
    std::cout << "  " << id << "_" << i << ": " << absl::StrJoin(lists, ", ") << ": "
              << LayoutText(tasks[i].prepared.plan.layout) << "\n";
  }
  std::cout << "  tail -F " << ShellWord(absl::StrCat(folder, "/slurm-", id, "_0.log")) << "\n  "
            << array.submission.program << " stop "
            << ShellWord(tasks.front().prepared.paths.folder) << "\n";
}

}  // namespace

int SubmitArray(const ArraySubmission& array, const PreparedJob& base) {
  const absl::StatusOr<std::vector<Sets>> lists = ArrayTasks(array.lists);
  if (!lists.ok()) return Fail(lists.status());
  int exit_code = kExitOk;
  // All are judged before the texts of any are tokenised.
  ArraySubmission judged = array;
  judged.options.on_tokens = nullptr;
  std::optional<std::vector<Task>> tasks = PrepareTasks(judged, base, *lists, &exit_code);
  if (tasks && array.options.on_tokens && !HaveTokens(*tasks)) {
    tasks = PrepareTasks(array, base, *lists, &exit_code);
  }
  if (!tasks) return exit_code;
  // The folder of the array is that of the job without the lists.
  SlurmSubmission submission = array.submission;
  for (const Task& task : *tasks) submission.tasks.push_back(task.prepared.paths.folder);
  submission.folder = base.paths.folder;
  const PreparedJob largest = Largest(*tasks, base.file.job.name);
  if (array.dry_run) {
    std::vector<const PreparedJob*> runs;
    for (const Task& task : *tasks) runs.push_back(&task.prepared);
    return PrintBatchScript(submission, largest, runs, array.options.fresh, array.accept);
  }
  for (const Task& task : *tasks) {
    const absl::Status free = CheckFreeInSlurm(task.prepared);
    if (!free.ok()) return Fail(free);
  }
  const absl::Status nodes = CheckNodesInSlurm(largest);
  if (!nodes.ok()) return Fail(nodes);
  const absl::Status opened = OpenTasks(array, *tasks);
  if (!opened.ok()) return Fail(opened);
  const absl::StatusOr<std::string> id =
      CallSbatch(ScriptOf(submission, largest), base.file.job.scheduler);
  if (!id.ok()) return Fail(id.status());
  for (size_t i = 0; i < tasks->size(); ++i) {
    const std::string& run = (*tasks)[i].prepared.paths.folder;
    const absl::Status written = WriteSlurmRun(run, RecordFor(run, absl::StrCat(*id, "_", i)));
    if (!written.ok()) std::cerr << "weft: warning: " << written.message() << "\n";
  }
  Say(array, *tasks, *id, base.paths.folder);
  return kExitOk;
}

}  // namespace weft
