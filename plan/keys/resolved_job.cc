#include "plan/keys/resolved_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/keys/job_tree.h"
#include "plan/keys/value.h"
#include "plan/keys/value_text.h"
#include "plan/spec/layout_spec.h"

namespace weft {
namespace {

Value TextList(const std::vector<std::string>& texts) {
  std::vector<Value> items;
  for (const std::string& text : texts) items.push_back(Value::Text(text));
  return Value::List(std::move(items));
}

Value RecordTree(const RunRecord& record) {
  Value tree = Value::Map();
  tree.entries = {{"format_version", Value::Whole(1)},
                  {"run_id", Value::Text(record.run_id)},
                  {"generation", Value::Whole(record.generation)},
                  {"weft_version", Value::Text(record.weft_version)},
                  {"planned_bytes", Value::Whole(record.planned_bytes)},
                  {"predicted_step_s", Value::Number(record.predicted_step_s)},
                  {"data", TextList(record.data)}};
  if (!record.accepted.empty()) tree.entries.push_back({"accepted", TextList(record.accepted)});
  return tree;
}

}  // namespace

JobSpec Resolve(JobSpec job, const Layout& layout) {
  job.layout = SpecOf(layout);
  job.checkpoint.interval = job.checkpoint.interval.value_or(0);
  if (job.lr_scheduler.type == LrSchedule::kConstant) {
    job.lr_scheduler.decay_steps = 0;  // it has none
  } else if (job.lr_scheduler.decay_steps == 0) {
    job.lr_scheduler.decay_steps = job.training.steps;
  }
  return job;
}

std::string JobFileText(const JobSpec& job) {
  std::string text;
  for (const auto& [name, node] : JobTree(job).entries) {
    absl::StrAppend(&text, name, ":");
    if (node.is_map()) {
      absl::StrAppend(&text, "\n", LinesText(node, 2));
    } else {
      absl::StrAppend(&text, YamlText(node, 0));
    }
  }
  return text;
}

std::string ResolvedText(const JobSpec& job, const RunRecord& record) {
  return absl::StrCat(
      "# Written by weft: the job as it runs. `weft run` of this file repeats it "
      "without a search.\n",
      JobFileText(job), "# weft's record of the run; nothing here changes how it computes.\n",
      "resolved:\n", LinesText(RecordTree(record), 2));
}

}  // namespace weft
