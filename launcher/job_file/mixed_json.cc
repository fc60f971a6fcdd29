#include "launcher/job_file/mixed_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "launcher/job_file/plan_json.h"
#include "plan/keys/layout_reader.h"
#include "process/version.h"
#include "proto/job_text.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* WayName(MixedWay way) {
  return way == MixedWay::kStages ? "stages" : "replicas";
}

OrderedJson MixedPlanJson(const JobSpec& job, absl::Span<const Cluster> parts,
                          const MixedPlan& plan) {
  const BatchShape batch = job.batch();
  const double tokens =
      static_cast<double>(batch.global_batch_size) * static_cast<double>(batch.seq_len);
  OrderedJson layout = JsonOf(LayoutTree(plan.layout));
  layout["world_size"] = plan.layout.world_size();
  OrderedJson uses = OrderedJson::array();
  for (const PartUse& use : plan.uses) {
    const Cluster& part = parts[static_cast<size_t>(use.part)];
    uses.push_back({{"part", part.name},
                    {"devices", use.devices},
                    {"of_devices", part.slots()},
                    {"first_stage", use.first_stage},
                    {"stages", use.stages},
                    {"replicas", use.replicas},
                    {"microbatches", use.microbatches},
                    {"blocks", use.blocks},
                    {"recompute", std::string(WordOf(use.recompute))},
                    {"memory_bytes", use.fullest.total_bytes()},
                    {"device_bytes", part.device.memory_bytes},
                    {"busy_share", use.busy_share}});
  }
  return {{"way", WayName(plan.way)},
          {"layout", layout},
          {"parts", uses},
          {"step_s", plan.step_s},
          {"tokens_per_s", tokens / plan.step_s},
          {"goodput", plan.goodput},
          {"idle_share", plan.idle_share}};
}

}  // namespace

std::string MixedJson(const JobSpec& job, absl::Span<const Cluster> parts,
                      const MixedAnswer& answer) {
  OrderedJson losers = OrderedJson::array();
  for (const MixedLoser& loser : answer.losers) {
    OrderedJson each = {{"of", loser.of}};
    if (loser.plan.step_s > 0) {
      each["plan"] = MixedPlanJson(job, parts, loser.plan);
    } else {
      each["why"] = loser.why;
    }
    losers.push_back(std::move(each));
  }
  OrderedJson alone = OrderedJson::array();
  for (size_t part = 0; part < parts.size(); ++part) {
    const PartAlone& own = answer.alone[part];
    OrderedJson each = {{"part", parts[part].name}};
    if (own.objective_s > 0) {
      each["layout"] = JsonOf(LayoutTree(own.layout));
      each["step_over_goodput_s"] = own.objective_s;
    } else {
      each["why"] = own.why;
    }
    alone.push_back(std::move(each));
  }
  const OrderedJson json = {{"format_version", kPlanJsonVersion},
                            {"weft_version", Version()},
                            {"plan", MixedPlanJson(job, parts, answer.plan)},
                            {"losers", losers},
                            {"alone", alone},
                            {"priced", answer.priced}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace weft
