#include "launcher/kubernetes/kubectl.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/kubernetes/manifest.h"
#include "launcher/machine/ask_program.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kAnswerMs = 60000;
constexpr int kStopMs = 600000;  // pods have their time to save

struct Complaint {
  absl::string_view said;  // by kubectl, in small letters
  absl::StatusCode code;
  absl::string_view meaning;
};

constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
constexpr auto kLater = absl::StatusCode::kUnavailable;

constexpr Complaint kComplaints[] = {
    {"no matches for kind \"jobset\"", kWrong,
     "cluster.jobset: the cluster has no JobSet; use false, or have it installed"},
    {"namespaces \"", kWrong,
     "cluster.namespace: there is no such namespace; `kubectl get namespaces` lists them"},
    {"forbidden", absl::StatusCode::kPermissionDenied,
     "Kubernetes does not let you make jobs, services, secrets and config maps there; ask for the "
     "right, or name another cluster.namespace"},
    {"unauthorized", absl::StatusCode::kPermissionDenied,
     "Kubernetes does not know you; log in anew, and look at `kubectl config current-context`"},
    {"you must be logged in", absl::StatusCode::kPermissionDenied,
     "Kubernetes does not know you; log in anew, and look at `kubectl config current-context`"},
    {"exceeded quota", kWrong,
     "the namespace's quota forbids a job of this size; ask for fewer pods, or for more quota"},
    {"connection refused", kLater,
     "no Kubernetes answers where kubectl looks for one; look at `kubectl config current-context`"},
    {"unable to connect", kLater,
     "no Kubernetes answers where kubectl looks for one; look at `kubectl config current-context`"},
    {"was refused", kLater,
     "no Kubernetes answers where kubectl looks for one; look at `kubectl config current-context`"},
};

absl::StatusOr<ProgramAnswer> AskKubectl(const std::vector<std::string>& argv,
                                         const std::string& input, int timeout_ms) {
  absl::StatusOr<ProgramAnswer> answer = AskProgram(argv, input, timeout_ms);
  if (absl::IsNotFound(answer.status())) {
    return absl::NotFoundError(
        "kubectl is not in PATH; install it where you submit, or see what would be submitted by "
        "--dry-run");
  }
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::UnavailableError(
        absl::StrCat(answer.status().message(), "; does the cluster answer? (kubectl version)"));
  }
  return answer;
}

std::vector<std::string> Kubectl(const JobSpec& job) {
  std::vector<std::string> argv = {"kubectl"};
  const std::string& space = job.scheduler.pods.name_space;
  if (!space.empty()) argv.push_back("--namespace=" + space);
  return argv;
}

// The label is on each of the job's pods.
std::string PodsSelector(const JobSpec& job) {
  return absl::StrCat("app.kubernetes.io/instance=", ObjectName(job.name));
}

}  // namespace

absl::Status KubectlFailure(absl::string_view words, const JobSpec& job) {
  const std::string lower = absl::AsciiStrToLower(words);
  if (absl::StrContains(lower, "field is immutable")) {
    const std::string object = absl::StrCat(ObjectKind(job), " ", ObjectName(job.name));
    return absl::InvalidArgumentError(
        absl::StrCat("Kubernetes has a ", object,
                     " already; once it is over, or to end it: ", "kubectl delete ", object));
  }
  for (const Complaint& complaint : kComplaints) {
    if (absl::StrContains(lower, complaint.said)) return {complaint.code, complaint.meaning};
  }
  const std::string last = LastLine(words);
  return absl::UnknownError(
      absl::StrCat("kubectl does not take the job: ", last.empty() ? "it said nothing" : last));
}

std::vector<std::string> PodLogsArgv(const JobSpec& job, bool follow, int64_t tail,
                                     const std::string& since) {
  std::vector<std::string> argv = Kubectl(job);
  argv.insert(argv.end(), {"logs", absl::StrCat("--selector=", PodsSelector(job),
                                                ",batch.kubernetes.io/job-completion-index=0")});
  // kubectl prints ten lines of pods that are chosen by labels, unless it is told.
  argv.push_back(absl::StrCat("--tail=", tail > 0 ? tail : -1));
  const bool is_time = since.find('T') != std::string::npos;
  if (!since.empty()) argv.push_back(absl::StrCat(is_time ? "--since-time=" : "--since=", since));
  if (follow) argv.push_back("--follow");
  return argv;
}

std::vector<std::vector<std::string>> StopArgvs(const JobSpec& job, bool now) {
  std::vector<std::string> end = Kubectl(job);
  end.insert(end.end(), {"delete", std::string(ObjectKind(job)), ObjectName(job.name)});
  if (!now) {
    end.push_back("--cascade=foreground");  // it is gone once its pods are
    return {end};
  }
  end.push_back("--wait=false");
  std::vector<std::string> pods = Kubectl(job);
  pods.insert(pods.end(), {"delete", "pods", "--selector=" + PodsSelector(job), "--now"});
  return {end, pods};
}

absl::StatusOr<bool> StopPods(const JobSpec& job, bool now) {
  for (const std::vector<std::string>& argv : StopArgvs(job, now)) {
    ASSIGN_OR_RETURN(const ProgramAnswer answer, AskKubectl(argv, "", kStopMs));
    if (answer.exit_code == 0) continue;
    if (absl::StrContains(answer.err, absl::StrCat("\"", ObjectName(job.name), "\" not found"))) {
      return false;
    }
    return KubectlFailure(answer.err, job);
  }
  return true;
}

absl::Status ApplyManifest(const std::string& manifest, const JobSpec& job) {
  ASSIGN_OR_RETURN(const ProgramAnswer answer,
                   AskKubectl({"kubectl", "apply", "-f", "-"}, manifest, kAnswerMs));
  return answer.exit_code == 0 ? absl::OkStatus() : KubectlFailure(answer.err, job);
}

}  // namespace weft
