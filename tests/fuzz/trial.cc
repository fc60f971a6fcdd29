#include "tests/fuzz/trial.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/unicode.h"
#include "tests/end_to_end/child.h"
#include "tests/places.h"

namespace weft {
namespace {

// A trial may take so much of the processor's time. Beside two busy loops and a test or two on each
// core that takes the clock up to a minute, after which `weft` waits for what does not come.
constexpr int kMostCpuSeconds = 10;
constexpr double kMostSeconds = 60;
constexpr int64_t kMostAddressBytes = int64_t{8} << 30;
constexpr size_t kMostShownBytes = 4000;
constexpr int kMostFailures = 5;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

std::string Weft() {
  const char* const other = std::getenv("WEFT_FUZZ_WEFT");
  return other == nullptr ? BinaryPath("/bin/weft") : other;
}

std::string Told(const Trial& trial, const std::string& name, const Answer& answer) {
  std::string text = absl::StrCat(name, "\n  weft");
  for (const std::string& word : trial.arguments)
    absl::StrAppend(&text, " '", Printable(word), "'");
  for (const auto& [file, content] : trial.files) {
    absl::StrAppend(&text, "\n  ", file, " (", content.size(), " bytes):\n",
                    Printable(absl::string_view(content).substr(0, kMostShownBytes)));
  }
  return absl::StrCat(text, "\n  exit code ", answer.exit_code,
                      "\n  stdout: ", Printable(answer.out.substr(0, kMostShownBytes)),
                      "\n  stderr: ", Printable(answer.err.substr(0, kMostShownBytes)));
}

// Returns what is wrong with an answer that came; empty: nothing.
std::string Wrong(const Trial& trial, const Answer& answer) {
  if (trial.exit_codes.count(answer.exit_code) == 0) return "an exit code that is not documented";
  for (const char* const words : {"CHECK failed", "terminate called", "Sanitizer", "bad_alloc"}) {
    if (absl::StrContains(answer.err, words)) return absl::StrCat("it says ", words);
  }
  if (answer.exit_code != 0 && !absl::StrContains(answer.err, "weft: "))
    return "no reason is given";
  if (Printable(answer.err) != answer.err) return "a terminal cannot show its stderr";
  if (trial.shows_text && Printable(answer.out) != answer.out) {
    return "a terminal cannot show its stdout";
  }
  return "";
}

}  // namespace

Answer Answered(const JobFolder& folder, const Trial& trial, const std::string& name) {
  for (const auto& [file, text] : trial.files) folder.Write(file, text);
  const std::string out = folder.path() + "/fuzz.out", err = folder.path() + "/fuzz.err";
  std::filesystem::remove(out);
  std::filesystem::remove(err);
  std::vector<std::string> words = {"/usr/bin/env",
                                    "-C",
                                    folder.path(),
                                    "prlimit",
                                    absl::StrCat("--as=", kMostAddressBytes),
                                    absl::StrCat("--cpu=", kMostCpuSeconds),
                                    "--core=0",
                                    Weft()};
  words.insert(words.end(), trial.arguments.begin(), trial.arguments.end());
  Child child(words, {{"HOME", folder.path()}}, out, err);
  const std::optional<Ended> ended = child.Wait(kMostSeconds);
  Answer answer{ended ? ended->exit_code : -1, child.Stdout(), child.Stderr()};
  std::string wrong;
  if (!ended) {
    wrong = absl::StrCat("no answer within ", kMostSeconds, " s");
  } else if (ended->signal != 0) {
    wrong = absl::StrCat("ended by signal ", ended->signal);
  } else {
    wrong = Wrong(trial, answer);
  }
  if (!wrong.empty()) ADD_FAILURE() << wrong << ": " << Told(trial, name, answer);
  return answer;
}

void Campaign(const std::string& kind, int cases,
              const std::function<void(Random& random, const std::string& name)>& trial_of) {
  const int64_t seed = FromEnvironment("WEFT_FUZZ_SEED", 1);
  const int64_t only = FromEnvironment("WEFT_FUZZ_CASE", -1);
  const int64_t end = only >= 0 ? only + 1 : cases * FromEnvironment("WEFT_FUZZ_FACTOR", 1);
  int failures = 0;
  for (int64_t number = std::max<int64_t>(only, 0); number < end; ++number) {
    const auto* const result = testing::UnitTest::GetInstance()->current_test_info()->result();
    const int before = result->total_part_count();
    Random random(static_cast<uint64_t>(seed) * 1'000'003 + static_cast<uint64_t>(number));
    trial_of(random, absl::StrCat(kind, ": WEFT_FUZZ_SEED=", seed, " WEFT_FUZZ_CASE=", number));
    if (result->total_part_count() > before && ++failures == kMostFailures) return;
  }
}

}  // namespace weft
