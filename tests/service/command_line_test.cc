// The command line against a service as it runs: weftd, a standing agent, its agents and ranks.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/end_to_end/slow_rank.h"
#include "tests/places.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class ServiceCommandLine : public ServiceBed {
 protected:
  std::unique_ptr<Child> Start(std::vector<std::string> words) {
    words.insert(words.begin(), BinaryPath("/bin/weft"));
    const std::string output = folder() + "/weft-" + std::to_string(++commands_);
    return std::make_unique<Child>(
        std::move(words),
        std::map<std::string, std::string>{{"WEFT_COORDINATOR", "unix:" + socket()}},
        output + ".out", output + ".err");
  }
  // Returns what it has printed, once it has ended with 0.
  std::string Weft(std::vector<std::string> words) {
    const std::unique_ptr<Child> weft = Start(std::move(words));
    const auto ended = weft->Wait(240);
    EXPECT_TRUE(ended && ended->exit_code == 0) << weft->Stdout() << weft->Stderr();
    return weft->Stdout();
  }
  std::string WriteJob(int steps) {
    const std::string path = folder() + "/job.yaml";
    std::ofstream(path)
        << "job: {name: mine, output_dir: " << folder() << "}\n"
        << "model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 2, "
           "n_head: 4}\n"
           "data: {format: bytes, train: [{path: /usr/share/common-licenses/GPL-3}]}\n"
           "training: {seq_len: 64, global_batch_size: 8, steps: "
        << steps
        << ", seed: 42}\n"
           "optimizer: {name: adamw, lr: 1.0e-3}\n"
           "parallelism: {dp: 2}\n"
           "checkpoint: {interval: 100}\n"
           "cluster: {profile: cpu, slots: 2}\n";
    return path;
  }

  // A rank that is made slow has to have something to do.
  const char* Pace() const override { return kNoPace; }

 private:
  int commands_ = 0;
};

TEST_F(ServiceCommandLine, TakesAJobFromItsFileToItsEnd) {
  StartHost(2);
  EXPECT_THAT(Weft({"submit", WriteJob(30)}), HasSubstr("job-1: dp=2 "));
  EXPECT_THAT(Weft({"watch", "job-1"}), HasSubstr("COMPLETED"));
  EXPECT_THAT(Weft({"events", "job-1"}), HasSubstr("saved step 30 ("));
  EXPECT_EQ(Json::parse(Weft({"ps", "--all", "--json"}))[0]["phase"], "COMPLETED");
  EXPECT_THAT(Weft({"status", "job-1"}), HasSubstr("step        30 of 30, saved 30"));
  EXPECT_EQ(Json::parse(Weft({"hosts", "--json"}))[0]["slots"], 2);
}

TEST_F(ServiceCommandLine, GoesOnFromTheCheckpointOfAStoppedJob) {
  StartHost(2);
  const std::string file = WriteJob(20000);
  Weft({"submit", file});
  WaitForStep("job-1", 5);
  Weft({"stop", "job-1"});
  const int64_t saved = WaitForPhase("job-1", "SUSPENDED").saved_step();
  EXPECT_GT(saved, 0);
  EXPECT_THAT(Weft({"submit", file}), HasSubstr("from step " + std::to_string(saved) + "\n"));
  EXPECT_GT(WaitForStep("job-2", saved + 1).step(), saved);
  Weft({"stop", "job-2", "--now"});
  WaitForPhase("job-2", "CANCELLED");
}

TEST_F(ServiceCommandLine, SaysWhyAGenerationOfAJobStopped) {
  StartHost(2);
  Weft({"submit", WriteJob(20000)});
  WaitForStep("job-1", 5);
  EXPECT_THAT(Weft({"why-stopped", "job-1"}),
              HasSubstr("job-1\n  no generation was ended by a failure\n"));
  EXPECT_EQ(Weft({"why-stopped", "job-1", "--json"}), "null\n");
  const std::vector<Found> ranks = Processes("weft-worker ");
  ASSERT_EQ(ranks.size(), 2u);
  const std::string rank = VariableOf(ranks[1].pid, "OMPI_COMM_WORLD_RANK");
  ASSERT_TRUE(KillFound(ranks[1], SIGKILL));
  WaitFor("job-1", [](const v1::Job& job) { return job.generation() == 2 && job.step() > 0; });
  const std::string why = Weft({"why-stopped", "job-1"});
  EXPECT_THAT(why, HasSubstr("job-1, generation 1\n  cause       rank " + rank + " ("));
  EXPECT_THAT(why, HasSubstr("killed by signal 9"));
  EXPECT_THAT(why, HasSubstr("\n  rank        " + rank + "\n"));
  EXPECT_THAT(why, HasSubstr("\n  weft        ended generation 1"));
  const Json event = Json::parse(Weft({"why-stopped", "job-1", "--json"}));
  EXPECT_EQ(event.at("event"), "rank_lost");
  EXPECT_EQ(std::to_string(event.at("rank").get<int>()), rank);
  EXPECT_THAT(Weft({"why-stopped", "job-1", "--generation", "7"}),
              HasSubstr("no generation 7 was ended by a failure"));
  Weft({"stop", "job-1", "--now"});
  WaitForPhase("job-1", "CANCELLED");
}

TEST_F(ServiceCommandLine, SaysWhichRankOfAJobIsSlow) {
  StartHost(2);
  Weft({"submit", WriteJob(100000)});
  WaitForStep("job-1", 40);
  const std::vector<Found> ranks = Processes("weft-worker ");
  ASSERT_EQ(ranks.size(), 2u);
  const std::string rank = VariableOf(ranks[1].pid, "OMPI_COMM_WORLD_RANK");
  const auto is_told = [&] {
    return Get("job-1").reason().find(" is slow: it computes for ") != std::string::npos;
  };
  SlowDownUntil(ranks[1], 240, is_told);
  EXPECT_THAT(Get("job-1").reason(), HasSubstr("rank " + rank + " ("));
  EXPECT_THAT(Weft({"events", "job-1"}), HasSubstr("rank " + rank + " ("));
  const std::string why = Weft({"why-stopped", "job-1"});
  EXPECT_THAT(why, HasSubstr("no generation was ended by a failure\na rank "));
  EXPECT_THAT(why, HasSubstr(" slow, generation 1\n  rank        " + rank + "\n  host        "));
  EXPECT_THAT(why, HasSubstr("\n  since       step "));
  Weft({"stop", "job-1", "--now"});
  EXPECT_EQ(WaitForPhase("job-1", "CANCELLED").generation(), 1) << "it is named, not ended";
}

TEST_F(ServiceCommandLine, HoldsTheRunFolderOfAJobThatRuns) {
  StartHost(2);
  const std::string file = WriteJob(20000);
  Weft({"submit", file});
  WaitForStep("job-1", 2);
  const std::unique_ptr<Child> run = Start({"run", file});
  const auto refused = run->Wait(240);
  EXPECT_TRUE(refused && refused->exit_code == 75) << run->Stdout();
  EXPECT_THAT(run->Stderr(), HasSubstr("is in use by job-1 of a weftd"));
  for (const char* const verb : {"status", "stop", "attach"}) {
    const std::unique_ptr<Child> other = Start({verb, folder() + "/mine"});
    const auto ended = other->Wait(240);
    EXPECT_TRUE(ended && ended->exit_code == 2) << verb << other->Stdout();
    EXPECT_THAT(other->Stderr(), HasSubstr("/mine is job-1's")) << verb;
  }
  Weft({"stop", "job-1", "--now"});
  WaitForPhase("job-1", "CANCELLED");
}

TEST_F(ServiceCommandLine, WatchOutlivesTheWeftdThatItWatches) {
  StartHost(2);
  Weft({"submit", WriteJob(20000)});
  WaitForPhase("job-1", "RUNNING");
  const std::unique_ptr<Child> watch = Start({"watch", "job-1"});
  EXPECT_TRUE(Eventually(120, [&] { return !watch->Stdout().empty(); })) << watch->Stderr();
  KillWeftd();
  WaitForPhase("job-1", "RUNNING");
  Weft({"stop", "job-1"});
  const auto ended = watch->Wait(240);
  EXPECT_TRUE(ended && ended->exit_code == 0) << watch->Stdout() << watch->Stderr();
  EXPECT_THAT(watch->Stdout(), HasSubstr("SUSPENDED"));
}

}  // namespace
}  // namespace weft
