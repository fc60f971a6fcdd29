// Why a plan is what it is, and what would make it better: differences of two step times by term,
// what more bandwidth, memory or batch would buy, what the whole job costs. Every figure is solved
// anew, none is a rule of thumb. Pure: values and text out.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/estimate/bill.h"
#include "plan/explain/front.h"
#include "plan/search/plan.h"
#include "plan/search/space.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout_text.h"

namespace weft {

// A sensitivity says what a changed machine or job would do, solved again.
struct Sensitivity {
  std::string change;  // "2 x network bandwidth between nodes"
  bool fits = false;
  Layout layout = {};  // of the plan then; only if it fits
  double step_s = 0;
  double tokens_per_s = 0;
};
// `plan`: the best layout of the job as it is.
std::vector<Sensitivity> SensitivitiesOf(const JobSpec& job, Purpose purpose, const Layout& plan);

// Pins alone keep a layout that is better than the plan from being it: values that the job fixes.
struct Pins {
  std::vector<PropertyText> values;  // that the better one does not keep
  std::optional<Plan> freed;         // the plan where these are auto
};
// nullopt: `other` is no better than `plan`, or breaks nothing.
std::optional<Pins> PinsAgainst(const JobSpec& job, const Plan& plan, const Plan& other,
                                Purpose purpose);
// "the job file fixes parallelism.pp 2, which alone rules it out; with auto the plan would be
// <layout>, 8.1 % more committed tokens/s"
std::string PinsText(const Plan& plan, const Plan& other, const Pins& pins);

Bill BillOf(const JobSpec& job, const Plan& plan);
// The same if a step took `step_s`.
Bill BillAt(const JobSpec& job, const Plan& plan, double step_s);

// Term by term, a row each, largest difference first; the differences sum exactly to that of the
// totals. Terms that neither has are left out. `ours`, `theirs`: headings of the columns.
std::string DifferenceText(absl::string_view ours, const TermSeconds& our_time,
                           absl::string_view theirs, const TermSeconds& their_time);

std::string SensitivitiesText(const Plan& plan, const BatchShape& batch,
                              const std::vector<Sensitivity>& sensitivities);
std::string FrontText(const std::vector<FrontPoint>& front);
std::string HoursText(double hours);  // "0.0446", "73.2", "549 k"
std::string BillText(const JobSpec& job, const Bill& bill);
// When the job saves: "every 105 steps (28.7 min)"; "at the end only; at this failure rate no
// checkpoint in between pays off".
std::string SavesText(const JobSpec& job, const Plan& plan);

}  // namespace weft
