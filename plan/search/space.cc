#include "plan/search/space.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/keys/job_rules.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_spec.h"

namespace weft {
namespace {

constexpr ScheduleKind kWholeBackward[] = {ScheduleKind::kOneForwardOneBackward,
                                           ScheduleKind::kGpipe, ScheduleKind::kZeroBubbleH1};

// Keeps what `keep` says, in order.
template <typename Value, typename Keep>
void Filter(std::vector<Value>& values, const Keep& keep) {
  values.erase(std::remove_if(values.begin(), values.end(),
                              [&](const Value& value) { return !keep(value); }),
               values.end());
}

std::vector<int> UpTo(int64_t most) {
  std::vector<int> values(static_cast<size_t>(std::max<int64_t>(most, 0)));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

std::vector<int> Narrow(const std::vector<int64_t>& values, int64_t most) {
  std::vector<int> narrow;
  for (const int64_t value : values) {
    if (value <= most) narrow.push_back(static_cast<int>(value));
  }
  return narrow;
}

}  // namespace

std::vector<int64_t> DivisorsOf(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor != 0) continue;
    small.push_back(divisor);
    if (divisor != number / divisor) large.push_back(number / divisor);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

LayoutSpec AskedLayout(const JobSpec& job) {
  LayoutSpec asked = job.layout;
  // A CPU worker's memory is the host's already: there is nothing to gain but a copy.
  const bool same_memory = job.cluster.device.backend == BackendKind::kCpu;
  if (!asked.offload_optimizer && (same_memory || !FirstIssue(OffloadIssues(job)).ok())) {
    asked.offload_optimizer = OffloadDevice::kNone;
  }
  return asked;
}

Question QuestionOf(const JobSpec& job) {
  Question question{.model = job.model,
                    .cluster = job.cluster,
                    .batch = job.batch(),
                    .numerics = job.numerics(),
                    .engine = WeftProfile(),
                    .adapters = std::nullopt,
                    .deterministic = job.deterministic};
  if (job.lora) {
    question.adapters = LowRankAdapters{
        .rank = job.lora->r, .targets = TargetsOf(*job.lora), .frozen = job.lora->quantization};
  }
  return question;
}

Space::Space(const Question& question, const LayoutSpec& constraints, Purpose purpose)
    : slots_(question.cluster.slots()),
      seq_len_(question.batch.seq_len),
      num_blocks_(question.model.num_blocks),
      fixed_(constraints),
      purpose_(purpose) {
  FillDegrees(question);
  FillCuts(question.batch.global_batch_size);
  recomputes_ = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  if (fixed_.recompute) recomputes_ = {*fixed_.recompute};
  if (!fixed_.recompute_per_stage.empty()) {
    recomputes_ = {fixed_.recompute.value_or(Recompute::kNone)};
  }
  if (purpose == Purpose::kRun) KeepRunnable(question.model);
  for (const int pp : pps_) schedules_.push_back(ChoicesOf(pp));
}

void Space::FillDegrees(const Question& question) {
  const ModelShape& model = question.model;
  const auto sound = [&](const Layout& layout) {
    return DegreeIssues(model, question.cluster, layout).empty();
  };
  tps_ = Narrow(DivisorsOf(std::gcd(model.num_heads, model.ffn_size)), slots_);
  if (fixed_.tp) tps_ = {*fixed_.tp};
  const int etp = fixed_.etp.value_or(0);
  Filter(tps_, [&](int tp) { return sound({.tp = tp, .etp = etp}); });
  cps_ = {1};
  if (seq_len_ % 2 == 0) cps_ = Narrow(DivisorsOf(seq_len_ / 2), slots_);
  if (fixed_.cp) cps_ = {*fixed_.cp};
  Filter(cps_, [&](int cp) {
    return sound({.cp = cp}) && (cp == 1 || seq_len_ % (2 * int64_t{cp}) == 0);
  });
  eps_ = Narrow(DivisorsOf(std::max<int64_t>(1, model.num_experts)), slots_);
  if (fixed_.ep) eps_ = {*fixed_.ep};
  Filter(eps_, [&](int ep) { return ep >= 1 && ep <= slots_ && sound({.dp = ep, .ep = ep}); });

  const bool uneven = fixed_.layers_per_stage && !fixed_.layers_per_stage->empty();
  pps_ = UpTo(std::min(model.num_blocks, slots_));
  if (uneven) pps_ = {static_cast<int>(fixed_.layers_per_stage->size())};
  if (fixed_.pp) {
    const bool asked = !uneven || pps_.front() == *fixed_.pp;
    pps_.assign(asked ? 1 : 0, *fixed_.pp);
  }
  const auto listed = static_cast<int>(fixed_.recompute_per_stage.size());
  if (listed > 0) Filter(pps_, [&](int pp) { return pp == listed; });
  Filter(pps_, [&](int pp) {
    if (pp < 1 || (pp > num_blocks_ && !uneven) || pp > slots_) return false;
    Layout layout{.pp = pp};
    if (uneven) layout.layers_per_stage = *fixed_.layers_per_stage;
    return !uneven || sound(layout);
  });
  zeros_ = {0, 1, 2, 3};
  if (fixed_.zero_stage) zeros_ = {*fixed_.zero_stage};
  // Without ZeRO a fixed width of its groups would mean nothing.
  const bool has_groups = fixed_.zero_hpz_partition_size.value_or(1) > 1;
  Filter(zeros_,
         [&](int zero) { return sound({.zero_stage = zero}) && !(has_groups && zero == 0); });
}

void Space::FillCuts(int64_t global) {
  std::vector<int> dps;
  if (global >= 1) dps = Narrow(DivisorsOf(global), slots_);
  if (fixed_.dp) Filter(dps, [&](int dp) { return dp == *fixed_.dp; });
  for (const int dp : dps) {
    const int64_t share = global / dp;
    std::vector<BatchCut> cuts;
    for (const int64_t micro : DivisorsOf(share)) {
      if (fixed_.micro_batch_size && micro != *fixed_.micro_batch_size) continue;
      if (fixed_.gradient_accumulation_steps &&
          share / micro != *fixed_.gradient_accumulation_steps)
        continue;
      cuts.push_back({micro, share / micro});
    }
    if (cuts.empty()) continue;
    dps_.push_back(dp);
    cuts_.push_back(std::move(cuts));
  }
}

std::vector<ScheduleChoice> Space::ChoicesOf(int pp) const {
  std::vector<ScheduleChoice> choices;
  const auto allowed = [&](ScheduleKind kind) {
    if (fixed_.pp_schedule) return *fixed_.pp_schedule == kind;
    return pp > 1 || kind == ScheduleKind::kOneForwardOneBackward;  // one stage: all are alike
  };
  if (fixed_.virtual_stages.value_or(1) == 1) {
    for (const ScheduleKind kind : kWholeBackward) {
      if (allowed(kind)) choices.push_back({kind, 1, false});
    }
  }
  const bool free_split = pp > 1 && pp < num_blocks_ && !fixed_.layers_per_stage &&
                          fixed_.recompute_per_stage.empty() && runs_uneven_;
  const size_t even = choices.size();
  for (size_t i = 0; free_split && i < even; ++i) choices.push_back({choices[i].kind, 1, true});
  const bool uneven = fixed_.layers_per_stage && !fixed_.layers_per_stage->empty();
  if (pp == 1 || uneven || !allowed(ScheduleKind::kInterleaved)) return choices;
  for (const int64_t chunks : DivisorsOf((num_blocks_ + pp - 1) / pp)) {
    if (chunks < 2 || chunks * pp > num_blocks_ || fixed_.virtual_stages) continue;
    choices.push_back({ScheduleKind::kInterleaved, static_cast<int>(chunks), false});
  }
  const int64_t chunks = fixed_.virtual_stages.value_or(1);
  // Other engines take any number of microbatches; nobody is offered that who did not ask.
  if (chunks >= 2 && chunks <= num_blocks_ / pp) {
    choices.push_back({ScheduleKind::kInterleaved, static_cast<int>(chunks), false,
                       /*ragged=*/purpose_ == Purpose::kEstimate});
  }
  return choices;
}

// Every dim by itself: the engine runs any of one that it runs with any of another.
void Space::KeepRunnable(const ModelShape& model) {
  const bool model_runs = EngineRuns(model);
  const auto runs = [&](const Layout& layout) { return model_runs && EngineRuns(layout); };
  Filter(tps_, [&](int tp) { return runs({.tp = tp}); });
  Filter(cps_, [&](int cp) { return runs({.cp = cp}); });
  Filter(eps_, [&](int ep) { return runs({.ep = ep}); });
  Filter(zeros_, [&](int zero) { return runs({.zero_stage = zero}); });
  runs_uneven_ = runs({.pp = 2, .layers_per_stage = {1, 2}});
  Layout fixed;
  fixed.offload_optimizer = OffloadDevice::kCpu;
  runs_offload_ = runs(fixed);
  fixed.offload_optimizer = fixed_.offload_optimizer.value_or(OffloadDevice::kNone);
  fixed.pp_schedule = fixed_.pp_schedule.value_or(fixed.pp_schedule);
  fixed.pp = std::max<int>(1, static_cast<int>(fixed_.recompute_per_stage.size()));
  fixed.gradient_accumulation_steps = fixed.pp;  // Takes says which numbers of them run
  fixed.recompute_per_stage = fixed_.recompute_per_stage;
  if (fixed_.layers_per_stage) fixed.layers_per_stage = *fixed_.layers_per_stage;
  if (!runs(fixed)) tps_.clear();
}

absl::Span<const int> Space::ZeroStages(int64_t data_group) const {
  size_t count = zeros_.size();
  if (data_group == 1 && !fixed_.zero_stage) count = std::min<size_t>(count, 1);
  return absl::MakeConstSpan(zeros_).first(count);
}

absl::Span<const OffloadDevice> Space::offloads() const {
  static constexpr OffloadDevice kPlaces[] = {OffloadDevice::kNone, OffloadDevice::kCpu};
  const absl::Span<const OffloadDevice> all(kPlaces);
  if (!fixed_.offload_optimizer) return runs_offload_ ? all : all.first(1);
  return *fixed_.offload_optimizer == OffloadDevice::kCpu ? all.last(1) : all.first(1);
}

absl::Span<const bool> Space::sequence_parallels(int tp, int cp) const {
  static constexpr bool kWays[] = {true, false};
  const absl::Span<const bool> all(kWays);
  const bool may_share = tp > 1 && seq_len_ / cp % tp == 0;
  if (!may_share) return all.last(1);
  if (!fixed_.sequence_parallel) return all;
  return *fixed_.sequence_parallel ? all.first(1) : all.last(1);
}

bool Space::Pairs(int tp, int cp) const {
  return int64_t{tp} * cp <= slots_ &&
         !(fixed_.sequence_parallel.value_or(false) && seq_len_ / cp % tp != 0);
}

bool Space::Pairs(int tp, int dp, int cp, int ep) const {
  const int etp = fixed_.etp.value_or(0);
  const int64_t ranks = int64_t{dp} * cp * (etp == 0 ? 1 : tp / etp);
  return ranks % ep == 0 &&
         int64_t{dp} * cp % std::max(1, fixed_.zero_hpz_partition_size.value_or(1)) == 0;
}

Layout Space::Base(int tp, int cp) const {
  LayoutSpec shared = fixed_;  // by all: what is a dim of the lattice is not
  shared.dp = shared.pp = shared.ep = shared.zero_stage = shared.virtual_stages = std::nullopt;
  shared.micro_batch_size = shared.gradient_accumulation_steps = std::nullopt;
  shared.pp_schedule = std::nullopt;
  shared.recompute = std::nullopt;
  Layout layout = LayoutOf(shared);
  layout.tp = tp;
  layout.cp = cp;
  layout.sequence_parallel = sequence_parallels(tp, cp).front();
  layout.recompute = recomputes_.empty() ? Recompute::kNone : recomputes_.front();
  return layout;
}

std::vector<int64_t> Space::WaysBefore(size_t dp, int64_t data_group) const {
  std::vector<int64_t> before = {0};
  for (size_t pp = 0; pp < pps_.size(); ++pp) {
    int64_t always = 0, in_rounds = 0;  // the latter take multiples of pp microbatches
    bool ragged = false;
    for (const ScheduleChoice& choice : schedules_[pp]) {
      ragged = ragged || choice.ragged;
      (choice.kind == ScheduleKind::kInterleaved ? in_rounds : always) += std::ssize(recomputes_);
    }
    int64_t ways = 0;
    for (const BatchCut& cut : cuts_[dp]) {
      const bool rounds =
          in_rounds > 0 && Takes({.kind = ScheduleKind::kInterleaved, .ragged = ragged}, pps_[pp],
                                 cut.gradient_accumulation_steps);
      ways += always + (rounds ? in_rounds : 0);
    }
    const size_t zeros = ZeroStages(data_group).size();
    before.push_back(before.back() + ways * static_cast<int64_t>(zeros * offloads().size()));
  }
  return before;
}

int64_t Space::CountPoints() const {
  int64_t points = 0;
  for (size_t dp = 0; dp < dps_.size(); ++dp) {
    const std::vector<int64_t> shared = WaysBefore(dp, /*data_group=*/2);
    const std::vector<int64_t> alone = dps_[dp] == 1 ? WaysBefore(dp, 1) : shared;
    for (const int cp : cps_) {
      for (const int tp : tps_) {
        if (!Pairs(tp, cp)) continue;
        const auto eps = std::count_if(eps_.begin(), eps_.end(),
                                       [&](int ep) { return Pairs(tp, dps_[dp], cp, ep); });
        const int64_t most = slots_ / (int64_t{tp} * cp * dps_[dp]);
        const auto pps = std::upper_bound(pps_.begin(), pps_.end(), most) - pps_.begin();
        const int64_t ways = eps * std::ssize(sequence_parallels(tp, cp));
        points += ways * (cp == 1 ? alone : shared)[static_cast<size_t>(pps)];
      }
    }
  }
  return points;
}

}  // namespace weft
