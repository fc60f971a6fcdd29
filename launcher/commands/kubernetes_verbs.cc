#include "launcher/commands/kubernetes_verbs.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/kubernetes/kubectl.h"
#include "launcher/kubernetes/manifest.h"
#include "launcher/machine/child_process.h"

namespace weft {

absl::StatusOr<std::optional<JobSpec>> KubernetesJobOf(const std::string& target) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(target, error)) return std::nullopt;
  JobFileOptions options;
  options.check_files = false;
  absl::StatusOr<JobFile> file = ReadJobFile(target, options);
  if (!file.ok()) return file.status();
  if (file->job.scheduler.kind != Scheduler::kKubernetes) return std::nullopt;
  return std::move(file->job);
}

int StopKubernetesJob(const JobSpec& job, bool now) {
  const std::string what = absl::StrCat(ObjectKind(job), " ", ObjectName(job.name));
  const absl::StatusOr<bool> stopped = StopPods(job, now);
  if (!stopped.ok()) return Fail(stopped.status());
  if (!*stopped) {
    std::cout << "Kubernetes has no " << what << "\n";
  } else {
    std::cout << (now ? "stopped\n" : "stopped; weft submit resumes from its last checkpoint\n");
  }
  return kExitOk;
}

int PrintPodLogs(const JobSpec& job, bool follow, int64_t tail, const std::string& since) {
  if (FindInPath("kubectl").empty()) {
    return Fail(absl::NotFoundError(
        "kubectl is not in PATH; install it, or read logs/ of the run folder on the pods' volume"));
  }
  std::vector<std::string> words = PodLogsArgv(job, follow, tail, since);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::cout << std::flush;
  execvp(argv[0], argv.data());
  return Fail(absl::ErrnoToStatus(errno, "kubectl cannot be started"));
}

}  // namespace weft
