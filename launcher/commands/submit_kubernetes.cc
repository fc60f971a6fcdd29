#include "launcher/commands/submit_kubernetes.h"

#include <ctime>
#include <filesystem>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/job_file/run_paths.h"
#include "launcher/kubernetes/kubectl.h"
#include "launcher/kubernetes/manifest.h"
#include "plan/errors.h"
#include "plan/estimate/goodput.h"
#include "plan/search/describe.h"
#include "plan/search/search.h"
#include "plan/search/space.h"
#include "plan/spec/layout_text.h"
#include "process/authority.h"

namespace weft {
namespace {

// The authority is gone when this returns: nobody can issue another one afterwards, and pods need
// no right to write a Secret, as they would if the first of them issued these.
absl::StatusOr<std::vector<std::string>> IssueBundles(const JobSpec& job) {
  const int64_t now_s = std::time(nullptr);
  ASSIGN_OR_RETURN(const Authority authority, Authority::CreateUnkept(now_s));
  ASSIGN_OR_RETURN(std::string server, authority.Issue(BundleRole::kServer, {}, now_s));
  std::vector<std::string> bundles = {std::move(server)};
  for (int pod = 1; pod < PodCount(job); ++pod) {
    ASSIGN_OR_RETURN(std::string agent,
                     authority.Issue(BundleRole::kAgent, {PodName(job, pod)}, now_s));
    bundles.push_back(std::move(agent));
  }
  return bundles;
}

void SayHowToFollow(const JobSpec& job, const Plan& plan, const std::string& run_folder) {
  const std::string name = ObjectName(job.name);
  const std::string& space = job.scheduler.pods.name_space;
  const std::string kubectl = space.empty() ? "kubectl" : absl::StrCat("kubectl -n ", space);
  std::cout << "kubernetes " << ObjectKind(job) << " " << name << ": " << PodCount(job) << " pods, "
            << LayoutText(plan.layout) << ", " << BytesText(plan.peak_bytes())
            << " a worker\nrun: " << run_folder << "\n  " << kubectl
            << " logs -f -l app.kubernetes.io/instance=" << name
            << ",batch.kubernetes.io/job-completion-index=0\n  " << kubectl << " delete "
            << ObjectKind(job) << " " << name << "\n";
}

}  // namespace

int SubmitToKubernetes(const std::string& path, const JobFileOptions& options, bool dry_run) {
  JobFileOptions words = options;
  words.check_files = false;
  if (words.fresh) {
    return Fail(absl::InvalidArgumentError(
        "--fresh: the run folder is on the pods' volume, and each new first pod would move it "
        "aside; give the run another name: --set job.name=NAME"));
  }
  const absl::StatusOr<JobFile> file = ReadJobFile(path, words);
  if (!file.ok()) return FailJobFile(file.status());
  const JobSpec& job = file->job;
  absl::Status status = CheckPodPaths(job);
  if (status.ok() && !file->has_tokens) {
    status = absl::InvalidArgumentError(
        "data.train: is text, which pods do not tokenise; make files of tokens on their volume "
        "with "
        "weft data prepare, and name those");
  }
  if (status.ok() && !file->has_steps) {
    status = absl::InvalidArgumentError(
        "training.epochs: the data is on the pods' volume and is not counted here; write "
        "training.steps in its place");
  }
  const std::optional<Layout> fixed = FixedLayout(job);
  const absl::StatusOr<Plan> plan =
      fixed ? PlanFor(job, *fixed, Purpose::kRun) : FindPlan(job, Purpose::kRun);
  if (status.ok()) status = plan.status();
  if (!status.ok()) {
    std::cerr << file->Locate(status.message()) << "\nweft: nothing was submitted\n";
    return absl::IsFailedPrecondition(status) ? kExitNothingFits : kExitUsage;
  }
  const FaultCosts costs =
      FaultCostsOf(job.cluster, CheckpointBytes(QuestionOf(job)), plan->layout.world_size());
  PodWords pods{
      .job_text = JobFileText(job), .run_folder = PathsOf(job).folder, .save_s = costs.save_s};
  if (dry_run) {
    std::cout << PodsManifest(job, *plan, pods);
    return kExitOk;
  }
  absl::StatusOr<std::vector<std::string>> bundles = IssueBundles(job);
  if (!bundles.ok()) return Fail(bundles.status());
  pods.bundles = *std::move(bundles);
  const absl::Status applied = ApplyManifest(PodsManifest(job, *plan, pods), job);
  if (!applied.ok()) return Fail(applied);
  SayHowToFollow(job, *plan, pods.run_folder);
  return kExitOk;
}

}  // namespace weft
