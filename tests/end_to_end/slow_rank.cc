#include "tests/end_to_end/slow_rank.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "process/progress_page.h"

namespace weft {
namespace {

constexpr double kLookS = 0.0002;
constexpr double kLeastStopS = 0.06;
constexpr double kMostStopS = 5;
// A peer may compute for as long as a step lasts: 1.5 times of it is what counts as slow.
constexpr double kStopsPerStep = 2;

bool Computes(const PageReader& page, int64_t after_step) {
  const auto seen = page.Read();
  return seen.ok() && seen->phase == RankPhase::kStep && seen->call.kind == CallKind::kNone &&
         seen->step > after_step;
}

int64_t StepOf(const PageReader& page) {
  const auto seen = page.Read();
  return seen.ok() ? seen->step : 0;
}

}  // namespace

void SlowDownUntil(const Found& rank, double timeout_s, const std::function<bool()>& is_told) {
  const std::string folder = VariableOf(rank.pid, kPagesVariable);
  const int number = std::atoi(VariableOf(rank.pid, "OMPI_COMM_WORLD_RANK").c_str());
  const auto page = PageReader::Open(PagePath(folder, number));
  if (!page.ok()) return;
  const double begun_s = NowSeconds();
  double asked_s = begun_s;
  double going_since_s = begun_s;
  int64_t stopped_step = 0;
  while (NowSeconds() - begun_s < timeout_s) {
    if (NowSeconds() - asked_s >= 0.5) {
      if (is_told()) return;
      asked_s = NowSeconds();
    }
    SleepSeconds(kLookS);
    if (!Computes(*page, stopped_step)) continue;
    KillFound(rank, SIGSTOP);
    if (Computes(*page, stopped_step)) {
      stopped_step = StepOf(*page);
      SleepSeconds(
          std::clamp(kStopsPerStep * (NowSeconds() - going_since_s), kLeastStopS, kMostStopS));
      going_since_s = NowSeconds();
    }
    KillFound(rank, SIGCONT);
  }
}

}  // namespace weft
