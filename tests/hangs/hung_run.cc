#include "tests/hangs/hung_run.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

namespace weft {

std::optional<Verdict> VerdictOf(const TinyRun& run) {
  static const auto* said = new std::regex(
      "rank (\\d+) \\(.*\\) hangs in ([a-z ]+), (.*?): .*, for ([0-9.]+) s \\(budget ([0-9.]+) "
      "s\\)");
  std::istringstream log(ReadText(run.run_folder() + "/logs/weftd.log"));
  for (std::string line; std::getline(log, line);) {
    if (line.find(" hangs in ") == std::string::npos) continue;  // an expression takes its time
    std::smatch match;
    if (!std::regex_search(line, match, *said)) continue;
    return Verdict{std::stoi(match[1]), match[2], match[3], std::stod(match[4]),
                   std::stod(match[5]), line};
  }
  return std::nullopt;
}

Verdict AwaitVerdict(const TinyRun& run, double timeout_s) {
  std::optional<Verdict> verdict;
  EXPECT_TRUE(Eventually(timeout_s, [&] { return (verdict = VerdictOf(run)).has_value(); }))
      << "nobody was named within " << timeout_s << " s";
  return verdict.value_or(Verdict());
}

std::vector<std::string> Arguments(const std::string& layout, const std::string& steps) {
  return {"--set", "training.steps=" + steps, "--set", "parallelism={" + layout + "}"};
}

}  // namespace weft
