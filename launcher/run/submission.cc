#include "launcher/run/submission.h"

#include "plan/keys/cluster_keys.h"
#include "plan/spec/layout_text.h"
#include "proto/job_text.h"

namespace weft {

v1::Submission SubmissionOf(const JobSpec& job, const std::string& run_folder, const Layout& layout,
                            const Continuation& going_on, const std::vector<std::string>& data) {
  v1::Submission submission;
  submission.set_job(JobText(job));
  submission.set_run_folder(run_folder);
  for (const PropertyText& property : PropertyTexts(layout)) {
    (*submission.mutable_layout())[std::string(property.name)] = property.value;
  }
  submission.set_planned_for(ClusterFingerprint(job.cluster));
  if (!going_on.load_checkpoint.empty()) {
    submission.mutable_load()->set_step(going_on.after_step);
    submission.mutable_load()->set_folder(going_on.load_checkpoint);
  }
  for (const OlderCheckpoint& each : going_on.older) {
    v1::Submission::Checkpoint& older = *submission.add_older();
    older.set_step(each.step);
    older.set_folder(each.folder);
  }
  v1::Submission::Run& run = *submission.mutable_run();
  run.set_id(going_on.run.id);
  for (const auto& [key, value] : going_on.run.mathematics)
    (*run.mutable_mathematics())[key] = value;
  for (const std::string& accepted : going_on.run.accepted) run.add_accepted(accepted);
  for (const std::string& fingerprint : data) submission.add_data(fingerprint);
  submission.set_last_generation(going_on.last_generation);
  return submission;
}

}  // namespace weft
