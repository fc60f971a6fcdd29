#include "launcher/job_file/plan_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "plan/block/tensors.h"
#include "plan/estimate/model_flops.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/layout_reader.h"
#include "plan/search/describe.h"
#include "plan/search/space.h"
#include "plan/spec/model.h"
#include "process/version.h"
#include "proto/job_text.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Numbers that are not finite become null, and bytes of a path that are no UTF-8 are replaced: JSON
// can hold neither.
std::string TextOf(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Text(absl::string_view text) {
  return absl::StrCat(text);
}

Json LayoutJson(const Layout& layout) {
  Json json = JsonOf(LayoutTree(layout));
  json["world_size"] = layout.world_size();
  return json;
}

Json TermsJson(const TermSeconds& time) {
  Json terms = Json::object();
  for (size_t i = 0; i < kTimeTerms; ++i) {
    const auto term = static_cast<TimeTerm>(i);
    terms[Text(WordOf(term))] = time.of(term);
  }
  return terms;
}

Json PredictionJson(const JobSpec& job, const Plan& plan) {
  const double tokens_per_s = plan.tokens_per_s(job.batch());
  const ModelFlopRate rate =
      ModelFlopRateOf(QuestionOf(job), tokens_per_s, plan.layout.world_size());
  return {{"step_s", plan.time.total_s()},
          {"tokens_per_s", tokens_per_s},
          {"model_flops_per_s", rate.flops_per_s},
          {"mfu", rate.utilisation()},
          {"bubble_fraction", plan.bubble_fraction},
          {"goodput_at_best_interval", plan.goodput},
          {"terms_s", TermsJson(plan.time)},
          {"determinism_s", DeterminismSeconds(QuestionOf(job), plan.layout, plan.time.total_s())}};
}

Json IssuesJson(const std::vector<SpecIssue>& issues) {
  Json json = Json::array();
  for (const SpecIssue& issue : issues) {
    json.push_back({{"key", issue.key}, {"message", issue.message}});
  }
  return json;
}

Json BillJson(const JobSpec& job, const Bill& bill) {
  return {{"interval_steps", job.checkpoint.interval.value_or(0)},
          {"wall_s", bill.wall_s()},
          {"steps_s", bill.steps_s},
          {"saving_s", bill.saving_s},
          {"lost_s", bill.lost_s},
          {"restarts_s", bill.restarts_s},
          {"stops", bill.stops},
          {"device_hours", bill.device_hours},
          {"goodput", bill.goodput},
          {"tokens", bill.tokens},
          {"tokens_per_s", bill.tokens_per_s},
          {"checkpoints", bill.checkpoints},
          {"disk_bytes", bill.disk_bytes},
          {"best_interval_steps", bill.best_interval_steps},
          {"best_wall_s", bill.best_wall_s}};
}

Json SpreadJson(const Spread& spread) {
  return {{"predicted", spread.predicted}, {"least", spread.least}, {"most", spread.most}};
}

Json ErrorJson(const Summary& summary) {
  const ErrorBar& error = summary.error;
  const Json end = error.to_gpus == kNoEnd ? Json(nullptr) : Json(error.to_gpus);
  Json json = {{"source", Text(WordOf(error.source))},
               {"runs", error.runs},
               {"engine", Text(error.engine)},
               {"from_gpus", error.from_gpus},
               {"to_gpus", end},
               {"p10", error.p10},
               {"median", error.median},
               {"p90", error.p90}};
  json["other_engines_step_s"] = Json::object();
  for (const EngineStep& other : summary.other_engines) {
    json["other_engines_step_s"][other.engine] = other.step_s;
  }
  return json;
}

Json SummaryJson(const Summary& summary) {
  Json advice = Json::array();
  for (const Advice& each : summary.advice) {
    advice.push_back({{"kind", Text(AdviceName(each.kind))},
                      {"layout", LayoutJson(each.layout)},
                      {"slower_share", each.slower_share},
                      {"free_bytes", each.free_bytes}});
  }
  const bool has_price = summary.price_per_device_hour > 0;
  return {{"free_bytes", summary.free_bytes},
          {"free_share", summary.free_share},
          {"exact", summary.exact},
          {"step_s", SpreadJson(summary.step_s)},
          {"tokens_per_s", SpreadJson(summary.tokens_per_s)},
          {"mfu", SpreadJson(summary.mfu)},
          {"wall_s", SpreadJson(summary.wall_s)},
          {"device_hours", SpreadJson(summary.device_hours)},
          {"price_per_device_hour", summary.price_per_device_hour},
          {"cost", has_price ? SpreadJson(summary.cost) : Json(nullptr)},
          {"error", ErrorJson(summary)},
          {"warnings", summary.warnings},
          {"advice", std::move(advice)}};
}

Json FrontJson(const std::vector<FrontPoint>& front) {
  Json json = Json::array();
  for (const FrontPoint& point : front) {
    json.push_back({{"layout", LayoutJson(point.layout)},
                    {"step_s", point.time.total_s()},
                    {"goodput_at_best_interval", point.goodput},
                    {"peak_bytes", point.peak_bytes}});
  }
  return json;
}

Json SensitivitiesJson(const std::vector<Sensitivity>& sensitivities) {
  Json json = Json::array();
  for (const Sensitivity& each : sensitivities) {
    Json one = {{"change", each.change}, {"fits", each.fits}};
    if (each.fits) {
      one["layout"] = LayoutJson(each.layout);
      one["step_s"] = each.step_s;
      one["tokens_per_s"] = each.tokens_per_s;
    }
    json.push_back(std::move(one));
  }
  return json;
}

Json MemoryJson(const Plan& plan) {
  Json stages = Json::array();
  for (const StageMemory& stage : plan.stages) {
    Json terms = Json::object();
    for (size_t i = 0; i < kMemoryTerms; ++i) {
      const auto term = static_cast<MemoryTerm>(i);
      if (term != MemoryTerm::kContext) terms[Text(WordOf(term))] = stage.memory.of(term);
    }
    stages.push_back({{"stage", stage.stage},
                      {"first_block", stage.blocks.begin},
                      {"num_blocks", stage.num_blocks},
                      {"bytes", std::move(terms)},
                      {"total_bytes", stage.layout_bytes()},
                      {"context_bytes", stage.memory.of(MemoryTerm::kContext)},
                      {"host_bytes", stage.memory.host_bytes},
                      {"exact", stage.memory.exact}});
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
      json["terms_s"] = TermsJson(rejection.time);
      break;
  }
  json["reason"] = RejectionText(job, plan, rejection);
  return json;
}

Json PinnedJson(const Pins& pins) {
  Json json = Json::array();
  for (const PropertyText& fixed : pins.values) {
    json.push_back({{"key", Text(fixed.key)}, {"value", fixed.value}});
  }
  return json;
}

Json SearchJson(const Plan& plan) {
  return {{"points", plan.counts.points},           {"evaluated", plan.counts.evaluated},
          {"cut_by_time", plan.counts.cut_by_time}, {"cut_by_memory", plan.counts.cut_by_memory},
          {"misfits", plan.counts.misfits},         {"replayed", plan.counts.replayed},
          {"repaired", plan.counts.repaired}};
}

// Hosts without a rank idle.
Json HostsJson(const PlanReport::Hosts& hosts) {
  Json json = Json::array();
  for (const HostOffer& offer : hosts.offers) {
    json.push_back({{"host", Text(offer.name)},
                    {"slots", offer.slots},
                    {"failure_domain", offer.domain.empty() ? Json() : Json(Text(offer.domain))},
                    {"ranks", Json::array()}});
  }
  const std::vector<PlacedRank>& ranks = hosts.placement.ranks;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    json[static_cast<size_t>(ranks[rank].host)]["ranks"].push_back(rank);
  }
  return {{"hosts", std::move(json)}, {"reasons", hosts.placement.reasons}};
}

}  // namespace

std::string PlanJson(const JobFile& file, const PlanReport& report, int max_rejections) {
  const JobSpec& job = file.job;
  const Plan& plan = report.plan;
  Json rejections = Json::array();
  const int shown = std::min(max_rejections, static_cast<int>(plan.rejections.size()));
  for (int i = 0; i < shown; ++i) {
    rejections.push_back(RejectionJson(job, plan, plan.rejections[static_cast<size_t>(i)]));
  }
  Json json = {
      {"format_version", kPlanJsonVersion},
      {"weft_version", Version()},
      {"job", {{"name", job.name}, {"run_folder", job.output_dir + "/" + job.name}}},
      {"model",
       {{"model_type", Text(ModelTypeOf(job.model))}, {"parameters", ParameterCount(job.model)}}},
      {"cluster",
       {{"profile", job.cluster.name},
        {"backend", Text(WordOf(job.cluster.device.backend))},
        {"nodes", job.cluster.nodes},
        {"slots_per_node", job.cluster.slots_per_node},
        {"fingerprint", ClusterFingerprint(job.cluster)}}},
      {"training",
       {{"global_batch_size", job.training.global_batch_size},
        {"seq_len", job.training.seq_len},
        {"tokens_per_step", job.training.global_batch_size * job.training.seq_len},
        {"mixed_precision", Text(WordOf(job.training.mixed_precision))},
        {"reduce_dtype", Text(WordOf(job.training.reduce_dtype))},
        {"steps", job.training.steps}}},
      {"layout", LayoutJson(plan.layout)},
      {"memory", MemoryJson(plan)},
      {"fits", plan.fits},
      {"summary", SummaryJson(report.summary)},
      {"prediction", PredictionJson(job, plan)},
      {"bill", BillJson(job, report.summary.bill)},
      {"engine_issues", IssuesJson(plan.engine_issues)},
      {"run_issues", IssuesJson(report.run_issues)},
      {"front", FrontJson(report.front)},
      {"sensitivities", SensitivitiesJson(report.sensitivities)},
      {"recorded_error", report.recorded_error},
      {"search", SearchJson(plan)},
      {"candidates", plan.counts.points},
      {"rejections", std::move(rejections)},
      {"notes", file.notes}};
  if (report.today) {
    json["today"] = {{"layout", LayoutJson(report.today->layout)},
                     {"memory", MemoryJson(*report.today)},
                     {"prediction", PredictionJson(job, *report.today)}};
  }
  if (report.whole) {
    json["whole"] = {{"lost_nodes", report.whole->lost_nodes},
                     {"layout", LayoutJson(report.whole->plan.layout)},
                     {"prediction", PredictionJson(job, report.whole->plan)}};
  }
  if (report.hosts) json["placement"] = HostsJson(*report.hosts);
  return TextOf(json);
}

std::string WhyJson(const JobFile& file, const Plan& plan, const std::string& asked,
                    const absl::StatusOr<Plan>& other) {
  const auto answer = [&](const Plan& one) -> Json {
    return {{"layout", LayoutJson(one.layout)},
            {"memory", MemoryJson(one)},
            {"prediction", PredictionJson(file.job, one)},
            {"engine_issues", IssuesJson(one.engine_issues)}};
  };
  Json json = {{"format_version", kPlanJsonVersion},
               {"weft_version", Version()},
               {"asked", asked},
               {"plan", answer(plan)},
               {"found", other.ok()}};
  if (!other.ok()) {
    json["reason"] = Text(other.status().message());
  } else {
    json["other"] = answer(*other);
    json["is_the_plan"] = other->layout == plan.layout;
    TermSeconds difference = other->time;
    difference += -1 * plan.time;
    if (const auto pins = PinsAgainst(file.job, plan, *other, Purpose::kEstimate)) {
      json["pinned"] = PinnedJson(*pins);
      if (pins->freed) json["freed"] = answer(*pins->freed);
    }
    json["difference"] = {{"step_s", other->time.total_s() - plan.time.total_s()},
                          {"terms_s", TermsJson(difference)}};
  }
  json["notes"] = file.notes;
  return TextOf(json);
}

}  // namespace weft
