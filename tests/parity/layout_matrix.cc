// Draws layouts by a seed and compares each with a single rank, by hand:
// weft_layout_matrix --seed N [--count N per model] [--list]
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/curve.h"
#include "tests/parity/layout_draw.h"
#include "tests/parity/training.h"

namespace weft {
namespace {

struct Options {
  uint64_t seed = 0;
  int count = 15;
  bool list = false;
};

int Usage() {
  std::fprintf(stderr, "usage: weft_layout_matrix --seed N [--count N] [--list]\n");
  return 2;
}

bool Parse(int argc, char** argv, Options& options) {
  bool has_seed = false;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--list") {
      options.list = true;
    } else if (flag == "--seed" && has_value) {
      has_seed = absl::SimpleAtoi(argv[++i], &options.seed);
      if (!has_seed) return false;
    } else if (flag == "--count" && has_value) {
      if (!absl::SimpleAtoi(argv[++i], &options.count) || options.count < 1) return false;
    } else {
      return false;
    }
  }
  return has_seed;
}

// Returns how many layouts differ.
int CompareAll(const DrawnModel& model, const Options& options) {
  std::map<std::string, absl::StatusOr<Curve>> singles;  // by OneRankLike
  int failures = 0;
  for (const Layout& layout : DrawLayouts(model, options.seed, options.count)) {
    const Layout like = OneRankLike(model.job, layout);
    const auto found = singles.find(LayoutText(like));
    const absl::StatusOr<Curve>& single =
        found != singles.end()
            ? found->second
            : singles
                  .emplace(LayoutText(like),
                           Train({.job = model.job, .layout = Fitted(model.job, like)}))
                  .first->second;
    if (!single.ok()) {
      std::printf("%s: single rank: %s\n", model.name.c_str(), single.status().ToString().c_str());
      return 1;
    }
    const auto curve = Train({.job = model.job, .layout = layout});
    const std::vector<std::string> differences =
        curve.ok() ? Differences(*curve, *single, BoundsOf(model.job, layout))
                   : std::vector<std::string>{curve.status().ToString()};
    failures += differences.empty() ? 0 : 1;
    std::printf("%-8s %s: %s\n", differences.empty() ? "equal" : "DIFFERS", model.name.c_str(),
                LayoutText(layout).c_str());
    for (const std::string& difference : differences) std::printf("    %s\n", difference.c_str());
    std::fflush(stdout);
  }
  return failures;
}

int Run(const Options& options) {
  int failures = 0;
  for (const DrawnModel& model : ModelsToDrawFor()) {
    if (!options.list) {
      failures += CompareAll(model, options);
      continue;
    }
    for (const Layout& layout : DrawLayouts(model, options.seed, options.count)) {
      std::printf("%s: %s\n", model.name.c_str(), LayoutText(layout).c_str());
    }
  }
  if (failures > 0) std::printf("%d layouts differ\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  if (!weft::Parse(argc, argv, options)) return weft::Usage();
  return weft::Run(options);
}
