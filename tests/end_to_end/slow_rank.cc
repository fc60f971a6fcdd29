#include "tests/end_to_end/slow_rank.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace weft {
namespace {

constexpr double kWorkS = 0.0005;
constexpr double kLeastStopS = 0.06;
constexpr double kMostStopS = 0.3;  // a rank is judged by windows of five steps, which are to end
constexpr double kMostWorkS = 1;
constexpr double kStopsPerWork = 4;

// How long the main thread has been on a processor: proc(5), schedstat.
double ProcessorSeconds(int pid) {
  return 1e-9 *
         std::strtod(ReadText("/proc/" + std::to_string(pid) + "/schedstat").c_str(), nullptr);
}

// Returns how long it took. What does not work at all, as it waits or is gone, ends that, too.
double LetWork(const Found& rank) {
  const double begun_s = NowSeconds();
  const double until_s = ProcessorSeconds(rank.pid) + kWorkS;
  KillFound(rank, SIGCONT);
  do {
    SleepSeconds(kWorkS);
  } while (ProcessorSeconds(rank.pid) < until_s && NowSeconds() - begun_s < kMostWorkS);
  return NowSeconds() - begun_s;
}

}  // namespace

void SlowDownUntil(const Found& rank, double timeout_s, const std::function<bool()>& is_told) {
  const double begun_s = NowSeconds();
  while (!is_told() && NowSeconds() - begun_s < timeout_s) {
    double took_s = 0;
    for (const double round_s = NowSeconds(); NowSeconds() - round_s < 0.5;) {
      KillFound(rank, SIGSTOP);
      SleepSeconds(std::clamp(kStopsPerWork * took_s, kLeastStopS, kMostStopS));
      took_s = LetWork(rank);
    }
  }
}

}  // namespace weft
