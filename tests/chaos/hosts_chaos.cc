#include "tests/chaos/hosts_chaos.h"

#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "checkpoint/verify.h"
#include "tests/end_to_end/lacking.h"
#include "tests/places.h"

namespace weft {
namespace {

// Hosts lie there (HostBed); the disk over it is seen by this process and by them.
constexpr char kDisk[] = "/var/tmp";
constexpr char kFiller[] = "/var/tmp/filler";
constexpr double kGoesOnWithinS = 120;

// For the rest of this process.
bool HasDiskOfItsOwn() {
  static const bool has = unshare(CLONE_NEWNS) == 0 &&
                          mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                          mount("tmpfs", kDisk, "tmpfs", 0, "size=128m,mode=1777") == 0;
  return has;
}

}  // namespace

void HostsChaos::SetUp() {
  END_FOR_WANT_OF(HostBed::Missing());
  ASSERT_TRUE(HasDiskOfItsOwn());
  HostsRun::SetUp();
}

void HostsChaos::TearDown() {
  if (bed_ == nullptr) return;
  EmptyDisk();
  HostsRun::TearDown();
}

void HostsChaos::StartChaos(const std::string& job, const std::vector<std::string>& variables) {
  std::vector<std::string> command = {"/usr/bin/env"};
  command.insert(command.end(), variables.begin(), variables.end());
  const std::vector<std::string> weft = {BinaryPath("/bin/weft"), "run", job, "--hosts",
                                         kThreeHosts};
  command.insert(command.end(), weft.begin(), weft.end());
  run_ = bed_->Start(1, command);
}

HostsChaos::Victim HostsChaos::Find(int host, const std::string& pattern, unsigned draw) {
  const auto found = bed_->Run(
      host, absl::StrCat("set -- $(pgrep -f -- '", pattern, "'); [ $# -gt 0 ] || exit 1; shift $((",
                         draw, " % $#)); echo $1; tr '\\0' '\\n' < /proc/$1/environ | ",
                         "sed -n 's/^OMPI_COMM_WORLD_RANK=//p'"));
  Victim victim;
  std::istringstream lines(found.out);
  lines >> victim.pid;
  if (!(lines >> victim.rank)) victim.rank = -1;
  return victim;
}

bool HostsChaos::Signal(int host, const Victim& victim, const std::string& signal) {
  return victim.pid > 0 &&
         bed_->Run(host, absl::StrCat("kill -", signal, " ", victim.pid)).exit_code == 0;
}

std::string HostsChaos::WrongCulprit(const Expected& expected, int64_t generation) const {
  const std::vector<RunEvent> events = Events();
  const auto lost = std::find_if(events.begin(), events.end(), [&](const RunEvent& event) {
    return event.event == "rank_lost" && event.generation >= generation;
  });
  if (lost == events.end()) return "nobody is blamed";
  const auto says = [&](const std::string& words) {
    return lost->reason.find(words) != std::string::npos;
  };
  const bool is_right =
      (expected.host.empty() || lost->host == expected.host) &&
      (expected.rank < 0 || lost->rank == expected.rank) &&
      (says(expected.said) || (!expected.or_said.empty() && says(expected.or_said)));
  if (is_right) return "";
  return absl::StrCat("rank ", expected.rank, " on ", expected.host, " is to blame (\"",
                      expected.said, "\"), not rank ", lost->rank, " on ", lost->host, ": ",
                      lost->reason);
}

// Each host has the ranks of the newest generation, and nobody else's.
std::string HostsChaos::WrongRanks() {
  std::string wrong;
  const auto is_right = [&] {
    wrong.clear();
    const std::string newest = absl::StrCat("--generation=", LastGeneration(), " ");
    int ranks = 0;
    for (int host = 1; host <= 3; ++host) {
      for (const std::string& line : bed_->Processes(host)) {
        if (line.rfind("weft-worker ", 0) != 0) continue;
        ++ranks;
        if (line.find(newest) == std::string::npos) absl::StrAppend(&wrong, "still runs ", line);
      }
    }
    if (ranks != 6) absl::StrAppend(&wrong, ranks, " ranks run, not 6");
    return wrong.empty();
  };
  return Eventually(kPatienceS, is_right) ? "" : wrong;
}

std::string HostsChaos::WrongAfter(const Expected& expected, int64_t generation, int64_t step) {
  const int64_t next = expected.goes_on ? generation : generation + 1;
  // A generation that has resumed repeats steps.
  const auto has_gone_on = [&] {
    const std::vector<StepMetrics> steps = Steps();
    return !steps.empty() && steps.back().generation >= next &&
           steps.back().step >= step + kStepsBetween;
  };
  if (!Eventually(kGoesOnWithinS, has_gone_on)) {
    return absl::StrCat("it does not go on:\n", Words());
  }
  std::string wrong;
  if (expected.goes_on && LastGeneration() != generation) {
    wrong = "the generation ended";
  }
  if (!expected.goes_on) wrong = WrongCulprit(expected, generation);
  if (wrong.empty()) return WrongRanks();
  return absl::StrCat(wrong, "\n", Words());
}

std::string HostsChaos::WrongEnd() {
  const auto stopped = bed_->Run(1, BinaryPath("/bin/weft") + " stop " + folder());
  if (stopped.exit_code != 0) return "it cannot be stopped: " + stopped.err;
  const std::optional<Ended> ended = run_->Wait(240);
  if (!ended || ended->exit_code != 0) return "it does not end well:\n" + Words();
  const std::string checkpoints = WrongCheckpoints();
  if (!checkpoints.empty()) return checkpoints;
  const std::vector<StepMetrics> steps = Steps();
  int64_t last = 0;
  for (const StepMetrics& each : steps) last = std::max(last, each.step);
  const std::string kept = folder() + ".kept";
  std::filesystem::rename(folder(), kept);
  const std::map<int64_t, std::string> curve = CurveOfAtLeast(last);
  std::filesystem::rename(kept, folder());
  return WrongLosses(curve);
}

std::string HostsChaos::WrongLosses(const std::map<int64_t, std::string>& curve) const {
  std::set<std::pair<int64_t, int64_t>> told;
  int64_t last = 0;
  for (const StepMetrics& each : Steps()) {
    const std::string where = absl::StrCat("step ", each.step, " of generation ", each.generation);
    const auto expected = curve.find(each.step);
    if (expected == curve.end() || each.loss_hex != expected->second) {
      return where + " has another loss";
    }
    if (!told.emplace(each.generation, each.step).second) return where + " is told twice";
    last = std::max(last, each.step);
  }
  const std::map<int64_t, std::string> steps = Curve();
  if (static_cast<int64_t>(steps.size()) != last) return "steps are missing";
  return "";
}

std::string HostsChaos::WrongCheckpoints() const {
  const auto steps = CommittedSteps(folder() + "/checkpoint");
  if (!steps.ok() || steps->empty()) return "no checkpoint is left";
  for (const int64_t step : *steps) {
    const auto verified = VerifyCheckpoint(absl::StrCat(folder(), "/checkpoint/step-", step));
    if (!verified.ok()) return std::string(verified.status().message());
  }
  return "";
}

void HostsChaos::FillDisk() {
  std::ofstream filler(kFiller, std::ios::binary);
  const std::string block(1 << 16, 'x');
  while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
}

void HostsChaos::EmptyDisk() {
  std::error_code error;
  std::filesystem::remove(kFiller, error);
}

const std::map<int64_t, std::string>& HostsChaos::CurveOfAtLeast(int64_t steps) {
  static auto* const curve = new std::map<int64_t, std::string>;
  if (static_cast<int64_t>(curve->size()) < steps) *curve = CurveOfOneHost(steps);
  return *curve;
}

}  // namespace weft
