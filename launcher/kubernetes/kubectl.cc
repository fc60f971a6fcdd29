#include "launcher/kubernetes/kubectl.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/kubernetes/manifest.h"
#include "launcher/machine/ask_program.h"

namespace weft {
namespace {

constexpr int kAnswerMs = 60000;

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

absl::Status ApplyManifest(const std::string& manifest, const JobSpec& job) {
  const absl::StatusOr<ProgramAnswer> answer =
      AskProgram({"kubectl", "apply", "-f", "-"}, manifest, kAnswerMs);
  if (absl::IsNotFound(answer.status())) {
    return absl::NotFoundError(
        "kubectl is not in PATH; install it where you submit, or see what would be submitted by "
        "--dry-run");
  }
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::UnavailableError(
        absl::StrCat(answer.status().message(), "; does the cluster answer? (kubectl version)"));
  }
  if (!answer.ok()) return answer.status();
  return answer->exit_code == 0 ? absl::OkStatus() : KubectlFailure(answer->err, job);
}

}  // namespace weft
