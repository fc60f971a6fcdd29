#include "worker/process/waiting_reports.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// The last step tells that a stop was agreed on, which is a fact.
bool MayBeLetGo(const proto::WorkerReport& report) {
  return report.has_step() && !report.step().stopping();
}

}  // namespace

void WaitingReports::Add(proto::WorkerReport report) {
  steps_ += MayBeLetGo(report) ? 1 : 0;
  reports_.push_back(std::move(report));
  if (steps_ > kMostSteps) DropOldestStep();
}

void WaitingReports::DropOldestStep() {
  const auto oldest = std::find_if(reports_.begin(), reports_.end(), MayBeLetGo);
  if (oldest == reports_.end()) return;
  if (oldest - reports_.begin() < static_cast<std::ptrdiff_t>(sent_)) --sent_;
  reports_.erase(oldest);
  --steps_;
}

void WaitingReports::Acknowledge(int64_t sequence) {
  while (!reports_.empty() && reports_.front().sequence() <= sequence) {
    steps_ -= MayBeLetGo(reports_.front()) ? 1 : 0;
    reports_.pop_front();
    if (sent_ > 0) --sent_;
  }
}

std::vector<proto::WorkerReport> WaitingReports::TakeUnsent() {
  std::vector<proto::WorkerReport> unsent(reports_.begin() + static_cast<std::ptrdiff_t>(sent_),
                                          reports_.end());
  sent_ = reports_.size();
  return unsent;
}

}  // namespace weft
