// The one way to print plans, layouts, memory tables and schedules for people. Pure: text out.
#pragma once
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

std::string BytesText(int64_t bytes);           // "1.50 GiB", "12.0 MiB"
std::string SecondsText(double seconds);        // "1.25 s", "34.1 ms"
std::string SignedSecondsText(double seconds);  // "+34.1 ms", "-1.25 s", "0 s"
std::string LongTimeText(double seconds);       // "75.4 s", "3.2 h", "14.0 days"
std::string CountText(double count);            // "2.62 B", "768"
std::string SlowerShareText(double share);      // "0.4 %", "less than 0.1 %"

// `text` in lines of at most 100 columns, broken at spaces, those after the first `indent` spaces
// in. A word that is longer stays whole.
std::string FoldedText(absl::string_view text, int indent);

// "needs 3.20 GiB on stage 0, 0.70 GiB above the 2.50 GiB of cpu-slot: activations 1.90 GiB is the
// largest part"; of estimates with their guard. `usable_bytes`: what the device leaves for it.
std::string MisfitText(const Cluster& cluster, int64_t usable_bytes, const Rejection& misfit);
std::string MisfitText(const Cluster& cluster, const Plan& plan);

// Why `rejection` is not `plan`: "12 % slower: bubble +310 ms, data_comm -50.0 ms, others -1.00
// ms", which sum to the difference of the steps; MisfitText; or the rule.
std::string RejectionText(const JobSpec& job, const Plan& plan, const Rejection& rejection);

// The parts of what plan/explain/summary.h prints of a plan. One line: what is planned, on what.
std::string HeadText(const JobSpec& job);
// Layout, ranks, memory of each stage, step time by term.
std::string TablesText(const JobSpec& job, const Plan& plan);
// Tells what was looked at, and the nearest losers with their reasons, at most so many.
std::string LosersText(const JobSpec& job, const Plan& plan, int max_rejections);

}  // namespace weft
