#include "tests/chaos/tally.h"

#include <algorithm>
#include <cstdio>

namespace weft {

void Tally::Add(const std::string& name, const std::string& wrong, const Outcome& outcome) {
  Class& of_name = classes_[name];
  ++(outcome.struck ? of_name.struck : of_name.not_met);
  of_name.longest_s = std::max(of_name.longest_s, outcome.seconds);
  if (outcome.starts > 1) ++restarted_by_hand_;
  if (!wrong.empty()) ++broken_;
  std::printf("%-44s %s, %d start%s", name.c_str(), outcome.struck ? "struck" : "not met",
              outcome.starts, outcome.starts == 1 ? "" : "s");
  if (outcome.seconds > 0) std::printf(", goes on after %.2f s", outcome.seconds);
  std::printf("%s%s\n", wrong.empty() ? "" : ": BROKEN: ", wrong.c_str());
  std::fflush(stdout);
}

void Tally::Print() const {
  int not_met = 0;
  int struck_classes = 0;
  for (const auto& [name, each] : classes_) {
    not_met += each.not_met;
    struck_classes += each.struck > 0 ? 1 : 0;
    if (each.longest_s > 0) {
      std::printf("%-44s %4d, the longest %.2f s\n", name.c_str(), each.struck, each.longest_s);
    }
  }
  std::printf(
      "%d faults in %d classes struck, %d not met, %d runs started again by hand, %d broken\n",
      struck(), struck_classes, not_met, restarted_by_hand_, broken_);
}

int Tally::struck() const {
  int sum = 0;
  for (const auto& [name, each] : classes_) sum += each.struck;
  return sum;
}

}  // namespace weft
