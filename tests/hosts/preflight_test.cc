// Hosts that have something wrong with them are found before anything is started there: named with
// the cure, and left out where the rest is enough. Real binaries, ssh and links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/lacking.h"
#include "tests/end_to_end/step_metrics.h"
#include "tests/hosts/equal_rates.h"
#include "tests/hosts/host_bed.h"
#include "tests/hosts/kept_bed.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Preflight : public ::testing::Test {
 protected:
  using Bed = KeptBed<HostBed, int>;

  void SetUp() override {
    END_FOR_WANT_OF(HostBed::Missing());
    bed_ = Bed::OfProcess().Take(3);
    std::filesystem::create_directory(folder());
    std::filesystem::copy("/usr/share/common-licenses/GPL-3", data());
  }
  void TearDown() override {
    if (bed_ == nullptr) return;
    run_.reset();
    bed_->ExpectNothingLeft();
    Bed::OfProcess().GiveBack();
  }
  static void TearDownTestSuite() { Bed::OfProcess().TakeDown(); }

  std::string Weft() { return ProgramsOfEqualRates(bed_) + "/weft"; }
  std::string folder() const { return bed_->shared() + "/tiny"; }
  std::string data() const { return bed_->shared() + "/text.txt"; }

  std::string WriteJob(const std::string& dp, const std::string& cluster,
                       const std::string& more = "") {
    const std::string path = bed_->shared() + "/job.yaml";
    std::ofstream(path)
        << "job: {name: tiny, output_dir: " << bed_->shared() << "}\n"
        << "model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 4, "
           "n_head: 4}\n"
        << "data: {format: bytes, train: [{path: " << data() << "}]}\n"
        << "training: {seq_len: 64, global_batch_size: 12, micro_batch_size: 2, steps: " << steps_
        << ", seed: 42}\n"
        << "optimizer: {name: adamw, lr: 1.0e-3}\nlr_scheduler: {type: constant}\n"
        << "parallelism: {" << dp << "pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b}\n"
        << "checkpoint: {interval: 3}\n"
        << more << "cluster: {profile: cpu, " << cluster << "}\n";
    return path;
  }
  std::string OnHosts(const std::string& nodes) const {
    return absl::StrCat("nodes: ", nodes, ", network: ", HostBed::kNetwork, ", ssh_options: \"",
                        bed_->ssh_options(), "\"");
  }
  // Runs it to its end; returns what it has said.
  std::string Run(const std::string& job, const std::string& hosts, int code = 0) {
    std::vector<std::string> command = {Weft(), "run", job};
    if (!hosts.empty()) command.insert(command.end(), {"--hosts", hosts});
    run_ = bed_->Start(1, command);
    const std::optional<Ended> ended = run_->Wait(240);
    const std::string said = run_->Stdout() + run_->Stderr();
    EXPECT_TRUE(ended && ended->exit_code == code)
        << said << ReadText(folder() + "/logs/weftd.log");
    return said;
  }
  void InShell(int host, const std::string& command) {
    const auto answer = bed_->Run(host, command);
    ASSERT_EQ(answer.exit_code, 0) << answer.err;
  }

  // The losses of two hosts' layout, on host 1 alone; trained once for each number of steps.
  std::map<int64_t, std::string> CurveOfTwo() {
    static auto* const trained = new std::map<int, std::map<int64_t, std::string>>;
    std::map<int64_t, std::string>& curve = (*trained)[steps_];
    if (!curve.empty()) return curve;
    Run(WriteJob("dp: 2, ", "slots: 4"), "");
    curve = CurveOf(folder());
    EXPECT_EQ(curve.size(), static_cast<size_t>(steps_));
    Clear();
    return curve;
  }
  // The folder itself stays: something may be mounted on it.
  void Clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      std::filesystem::remove_all(entry.path());
    }
  }
  // h3 is bad: the job goes on without it where two are enough, and does not begin where they are
  // not.
  void ExpectLeftOut(const ::testing::Matcher<std::string>& reason) {
    const std::string said = Run(WriteJob("", OnHosts("\"2:3\"")), "h1:2,h2:2,h3:2");
    EXPECT_THAT(said, AllOf(HasSubstr("host h3 is left out: "), reason));
    const std::map<int64_t, std::string> curve = CurveOf(folder());
    Clear();
    EXPECT_EQ(curve, CurveOfTwo());
    const std::string failed = Run(WriteJob("", OnHosts("3")), "h1:2,h2:2,h3:2", 1);
    EXPECT_THAT(failed, AllOf(HasSubstr("2 of at least 3 hosts passed their check"),
                              HasSubstr("host h3: "), reason));
    EXPECT_THAT(failed, Not(HasSubstr("STARTING")));
  }

  // weft doctor on host 1; every line of the table has to fit.
  std::string Doctor(const std::string& hosts, int code, const std::string& more = "") {
    std::vector<std::string> command = {Weft(),        "doctor",          "--hosts",
                                        hosts,         "--ssh-options",   bed_->ssh_options(),
                                        "--network",   HostBed::kNetwork, "--folder",
                                        bed_->shared()};
    if (!more.empty()) command.push_back(more);
    run_ = bed_->Start(1, command);
    const std::optional<Ended> ended = run_->Wait(240);
    const std::string said = run_->Stdout();
    EXPECT_TRUE(ended && ended->exit_code == code) << said << run_->Stderr();
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line) && more.empty();) {
      EXPECT_LE(line.size(), 80u) << line;
    }
    for (const auto& entry : std::filesystem::directory_iterator(bed_->shared())) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("weft-doctor")));
    }
    return said;
  }

  int steps_ = 6;
  HostBed* bed_ = nullptr;
  std::unique_ptr<Child> run_;
};

TEST_F(Preflight, LeavesNoHostOutThatIsWell) {
  const std::string said = Run(WriteJob("", OnHosts("3")), "h1:2,h2:2,h3:2");
  EXPECT_THAT(said, Not(HasSubstr("left out")));
  EXPECT_EQ(CurveOf(folder()).size(), static_cast<size_t>(steps_));
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".hosts"))) << "a token is left";
  }
}

TEST_F(Preflight, FindsARunFolderThatIsAnotherOne) {
  InShell(3, "mount -t tmpfs tmpfs " + folder());
  ExpectLeftOut(AllOf(HasSubstr("run folder: " + folder() + " is another folder here"),
                      HasSubstr("job.output_dir has to be on a file system that all hosts mount")));
}

TEST_F(Preflight, FindsOtherDataBehindTheSamePath) {
  std::ofstream(bed_->shared() + "/other.txt") << ReadText(data()) << "and more";
  InShell(3, "mount --bind " + bed_->shared() + "/other.txt " + data());
  ExpectLeftOut(AllOf(HasSubstr("data: " + data() + " has other contents here"),
                      HasSubstr("the hosts have to read the same data")));
}

TEST_F(Preflight, FindsTooLittleSharedMemory) {
  InShell(3, "mount -t tmpfs -o size=1m tmpfs /dev/shm");
  ExpectLeftOut(AllOf(HasSubstr("shared memory: 1.00 MiB free in /dev/shm, but 2 ranks need"),
                      HasSubstr("make it larger")));
}

// h2 and h3 reach h1, but not each other. h2 is refused at once, h3 waits for an answer in vain:
// whoever has said so when all hosts are judged is told, and one is enough.
TEST_F(Preflight, FindsAPairThatDoesNotReachEachOther) {
  InShell(2, "ip route add blackhole " + HostBed::Address(3) + "/32");
  ExpectLeftOut(AllOf(AnyOf(HasSubstr("h2 does not reach h3 (10.78.0.13: "),
                            HasSubstr("h3 does not reach h2 (10.78.0.12: ")),
                      HasSubstr("look at routes and firewalls between them")));
}

// A lost host is replaced in the same layout, so every loss is that of a run in which nothing
// happened.
TEST_F(Preflight, ASpareTakesTheLostHostsPlace) {
  steps_ = 100;  // h3 has read the data before they are over
  const std::map<int64_t, std::string> alone = CurveOfTwo();
  const std::string job = WriteJob("dp: 2, ", OnHosts("2, spares: 1"),
                                   "fault_tolerance: {heartbeat_timeout_seconds: 4}\n");
  run_ = bed_->Start(1, {Weft(), "run", job, "--hosts", "h1:2,h2:2,h3:2"});
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return CurveOf(folder()).size() >= 13; }))
      << run_->Stdout();
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    return ReadText(folder() + "/logs/agent-h3.log").find("standing by: read ") !=
           std::string::npos;
  })) << ReadText(folder() + "/logs/agent-h3.log");
  bed_->CutLink(2);
  const std::optional<Ended> ended = run_->Wait(180);
  bed_->RestoreLink(2);
  const std::string said = run_->Stdout() + run_->Stderr();
  EXPECT_TRUE(ended && ended->exit_code == 0) << said << ReadText(folder() + "/logs/weftd.log");
  EXPECT_THAT(said, AllOf(HasSubstr("host h2 lost"), Not(HasSubstr("planned for"))));
  EXPECT_EQ(CurveOf(folder()), alone);
}

TEST_F(Preflight, TheDoctorFindsThreeHostsWell) {
  const std::string said = Doctor("h1:2,h2:2,h3:2", 0);
  std::printf("%s", said.c_str());
  EXPECT_THAT(said, HasSubstr("well: all hosts have reduced gradients together"));
  EXPECT_THAT(said, AllOf(HasSubstr("\nh1 "), HasSubstr("\nh2 "), HasSubstr("\nh3 ")));
  EXPECT_THAT(said, Not(HasSubstr("BAD")));
  const auto json = nlohmann::json::parse(Doctor("h1,h2", 0, "--json"), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_TRUE(json["sound"] && json["all_reduce"]);
  EXPECT_GT(json["hosts"][1]["product_flops_per_s"], 1e9);
}

TEST_F(Preflight, TheDoctorNamesWhatIsBadAndTheCure) {
  InShell(2, "ip route add blackhole " + HostBed::Address(3) + "/32");
  InShell(2, "mount -t tmpfs -o size=1m tmpfs /dev/shm");
  const std::string said = Doctor("h1:2,h2:2,h3:2,nohost", 1);
  std::printf("%s", said.c_str());
  EXPECT_THAT(said, HasSubstr("h2: shared memory: 1.00 MiB free in /dev/shm"));
  EXPECT_THAT(said, HasSubstr("nohost: ssh: "));
  EXPECT_THAT(said, HasSubstr("no step over all hosts was tried"));
}

}  // namespace
}  // namespace weft
