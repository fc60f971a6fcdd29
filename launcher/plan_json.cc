#include "launcher/plan_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "plan/search/describe.h"
#include "process/version.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(absl::string_view text) {
  return absl::StrCat(text);
}

Json LayoutJson(const Layout& layout) {
  return {{"dp", layout.dp},
          {"tp", layout.tp},
          {"pp", layout.pp},
          {"cp", layout.cp},
          {"zero_stage", layout.zero_stage},
          {"pp_schedule", Text(ScheduleName(layout.schedule))},
          {"micro_batch_size", layout.micro_batch_size},
          {"gradient_accumulation_steps", layout.num_microbatches},
          {"recompute", "none"},
          {"world_size", layout.world_size()}};
}

Json MemoryJson(const Plan& plan) {
  Json stages = Json::array();
  for (const StageMemory& stage : plan.stages) {
    Json terms = Json::object();
    for (size_t i = 0; i < kMemoryTerms; ++i) {
      const auto term = static_cast<MemoryTerm>(i);
      if (term != MemoryTerm::kContext) terms[Text(MemoryTermName(term))] = stage.memory.of(term);
    }
    stages.push_back({{"stage", stage.stage},
                      {"first_block", stage.blocks.begin},
                      {"num_blocks", stage.num_blocks},
                      {"bytes", std::move(terms)},
                      {"total_bytes", stage.layout_bytes()}});
  }
  return {{"usable_bytes", plan.usable_bytes},
          {"peak_bytes", plan.peak_bytes()},
          {"stages", std::move(stages)}};
}

Json RejectionJson(const JobSpec& job, const Plan& plan, const Rejection& rejection) {
  Json json = {{"layout", LayoutJson(rejection.layout)}};
  switch (rejection.cause) {
    case RejectionCause::kBrokenRule:
      json["cause"] = "rule";
      break;
    case RejectionCause::kDoesNotFit:
      json["cause"] = "memory";
      json["memory_bytes"] = rejection.memory_bytes;
      break;
    case RejectionCause::kSlower:
      json["cause"] = "slower";
      json["memory_bytes"] = rejection.memory_bytes;
      json["step_s"] = rejection.time.total_s();
      break;
  }
  json["reason"] = RejectionText(job, plan, rejection);
  return json;
}

}  // namespace

std::string PlanJson(const JobFile& file, const Plan& plan, int max_rejections) {
  const JobSpec& job = file.job;
  Json terms = Json::object();
  for (size_t i = 0; i < kTimeTerms; ++i) {
    const auto term = static_cast<TimeTerm>(i);
    terms[Text(TimeTermName(term))] = plan.time.of(term);
  }
  Json rejections = Json::array();
  const int shown = std::min(max_rejections, static_cast<int>(plan.rejections.size()));
  for (int i = 0; i < shown; ++i) {
    rejections.push_back(RejectionJson(job, plan, plan.rejections[static_cast<size_t>(i)]));
  }
  const Json json = {
      {"format_version", kPlanJsonVersion},
      {"weft_version", Version()},
      {"job", {{"name", job.name}, {"run_folder", job.output_dir + "/" + job.name}}},
      {"model",
       {{"model_type", Text(FamilyName(job.model.family))},
        {"parameters", ParameterCount(job.model)}}},
      {"cluster",
       {{"profile", job.cluster.name},
        {"backend", job.cluster.device.backend == BackendKind::kCuda ? "cuda" : "cpu"},
        {"nodes", job.cluster.nodes},
        {"slots_per_node", job.cluster.slots_per_node}}},
      {"training",
       {{"global_batch_size", job.training.global_batch_size},
        {"seq_len", job.training.seq_len},
        {"tokens_per_step", job.training.global_batch_size * job.training.seq_len},
        {"steps", job.training.steps}}},
      {"layout", LayoutJson(plan.layout)},
      {"memory", MemoryJson(plan)},
      {"prediction",
       {{"step_s", plan.time.total_s()},
        {"tokens_per_s", plan.tokens_per_s(job.batch())},
        {"bubble_fraction", plan.bubble_fraction},
        {"terms_s", std::move(terms)}}},
      {"candidates", plan.counts.points},
      {"rejections", std::move(rejections)},
      {"notes", file.notes}};
  return json.dump(2) + "\n";
}

}  // namespace weft
