// Summary answers what someone who pays for a plan asks, in at most ten lines above all tables:
// does it fit, how fast, how long, how dear, how sure, what to beware of; and advice, which a plan
// never follows by itself. Pure: values and text out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/engine/engine_profile.h"
#include "plan/estimate/bill.h"
#include "plan/estimate/prediction_error.h"
#include "plan/explain/front.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

// A prediction and what eight of ten measured runs would have made of it.
struct Spread {
  double predicted = 0;
  double least = 0;
  double most = 0;
};

// A device has clearly room with this share of it free. Beside the exact list of buffers stands an
// allowance for context and libraries, 3 of 80 GiB in the profiles that ship: with 5 % free,
// libraries may take twice that.
inline constexpr double kRoomShare = 0.05;

// A layout that the plan beats by less than predictions are off.
struct Advice {
  enum class Kind { kSimpler, kMoreRoom } kind = Kind::kSimpler;
  Layout layout = {};
  double slower_share = 0;  // by committed tokens/s
  int64_t free_bytes = 0;   // of a device, on the fullest rank
};
absl::string_view AdviceName(Advice::Kind kind);  // "simpler", "more_room"

struct EngineStep {
  std::string engine;
  double step_s = 0;
};

struct Summary {
  bool exact = false;      // memory is the list of buffers that a worker allocates
  int64_t free_bytes = 0;  // on the fullest rank; below 0: it does not fit
  double free_share = 0;   // of what is usable
  ErrorBar error;
  Spread step_s, tokens_per_s, mfu;
  Spread wall_s, device_hours, cost;  // of the whole job; cost: 0 without a price
  Bill bill;
  double price_per_device_hour = 0;
  // An engine that was never measured has the same layout with the habits of the fastest and of the
  // slowest of those that were.
  std::vector<EngineStep> other_engines = {};
  std::vector<std::string> warnings = {};  // what to beware of, for people
  std::vector<Advice> advice = {};
};

// `engine`: whose habits the plan was priced by. `recorded`: what this user's own runs say, if they
// say anything. `front` may be empty: roomier layouts are looked for there and among the nearest
// losers, so that advice costs no search. REQUIRES: `plan` is of `job` and `engine`, its
// checkpoint.interval settled.
Summary SummaryOf(const JobSpec& job, const Plan& plan, const EngineProfile& engine,
                  const ErrorBar& recorded, absl::Span<const FrontPoint> front);

// Returns what SummaryOf gives as advice with this front: for those who print the rest before they
// look for one. `summary`: SummaryOf of the same plan.
std::vector<Advice> AdviceOf(const JobSpec& job, const Plan& plan, const Summary& summary,
                             absl::Span<const FrontPoint> front);

std::string SummaryText(const JobSpec& job, const Plan& plan, const Summary& summary);
std::string AdviceText(const Summary& summary);

// The first part of the page about a plan, for which nothing but the plan is needed: one line of
// what is planned, the summary, layout, memory and time.
std::string AnswerText(const JobSpec& job, const Plan& plan, const Summary& summary);
// The page: AnswerText, advice, the nearest losers, at most so many.
std::string PlanText(const JobSpec& job, const Plan& plan, const Summary& summary,
                     int max_rejections);

}  // namespace weft
