// Going on with a run: what may change, whose checkpoints are whose, and that nothing begins anew
// in silence.
#include "launcher/run/going_on.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "plan/search/search.h"
#include "process/run_files.h"
#include "process/version.h"
#include "tests/launcher/run/small_run.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class GoingOn : public SmallRun {
 protected:
  // A checkpoint of the job as the run's workers would save it.
  static void Save(const JobSpec& job, int64_t step, const std::string& run_id,
                   const std::string& run_folder, int64_t generation = 1) {
    const std::string folder = CheckpointFolder(job);
    const std::vector<float> values = {1, 2};
    const auto shard = WriteShard(StageFolder(folder, run_id, generation, step), 0,
                                  {{BoxToSave{"w", {2}, {0}, {2}, values}}});
    ASSERT_TRUE(shard.ok()) << shard.status();
    Manifest manifest;
    manifest.run_id = run_id;
    manifest.run_folder = run_folder;
    manifest.step = step;
    manifest.generation = generation;
    if (!run_id.empty()) {
      for (const auto& [key, value] : Mathematics(job)) {
        manifest.facts[kMathematicsFact + key] = value;
      }
    }
    manifest.shards = {*shard};
    ASSERT_EQ(CommitCheckpoint(folder, manifest), absl::OkStatus());
  }
  static void Tear(const std::string& step_folder) {
    ASSERT_EQ(truncate((step_folder + "/rank-00000.safetensors").c_str(), 20), 0);
  }
  PreviousRun Previous(const JobSpec& job) {
    return {job, RunRecord{.run_id = kOwn, .weft_version = Version(), .data = Data(job)}};
  }
  absl::StatusOr<Continuation> GoOn(const JobSpec& job,
                                    const std::optional<PreviousRun>& previous = std::nullopt,
                                    std::optional<int64_t> saved_step = std::nullopt) {
    return Continue(job, Data(job), previous, saved_step);
  }

  static constexpr char kOwn[] = "00000000000000aa";
  static constexpr char kOther[] = "00000000000000bb";
};

TEST_F(GoingOn, GoesOnFromTheNewestCheckpointThatVerifies) {
  const JobSpec job = Job();
  const std::string folder = CheckpointFolder(job);
  EXPECT_EQ(folder, run() + "/checkpoint");
  for (const int64_t step : {5, 10}) {
    const std::vector<float> values = {1, 2};
    const BoxToSave box{"w", {2}, {0}, {2}, values};
    std::filesystem::create_directories(folder);
    const auto shard = WriteShard(StageFolder(folder, "", 1, step), 0, {box});
    ASSERT_TRUE(shard.ok()) << shard.status();
    Manifest manifest;
    manifest.step = step;
    manifest.generation = 1;
    manifest.shards = {*shard};
    ASSERT_TRUE(CommitCheckpoint(folder, manifest).ok());
  }
  auto going_on = Continue(job, Data(job), std::nullopt, std::nullopt);
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_EQ(going_on->after_step, 10);
  EXPECT_EQ(going_on->load_checkpoint, folder + "/step-10");
  EXPECT_THAT(going_on->notes, IsEmpty());

  ASSERT_EQ(truncate((folder + "/step-10/rank-00000.safetensors").c_str(), 20), 0);
  going_on = Continue(job, Data(job), std::nullopt, std::nullopt);
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_EQ(going_on->after_step, 5);
  EXPECT_THAT(going_on->notes, IsEmpty());
  EXPECT_THAT(going_on->damaged, ElementsAre(HasSubstr("step-10: ")));

  going_on = Continue(Job({"checkpoint.resume=none"}), Data(job), std::nullopt, std::nullopt);
  EXPECT_EQ(going_on->after_step, 0);
}

TEST_F(GoingOn, RefusesAnotherMathematicsWithTheListAndTakesAnotherExecution) {
  const JobSpec job = Job();
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  const auto going_on = [&](const JobSpec& now) {
    return Continue(now, *Fingerprints(now), PreviousRun{job, record}, std::nullopt);
  };
  EXPECT_THAT(going_on(job)->notes, IsEmpty());
  EXPECT_THAT(going_on(Job({"checkpoint.interval=3"}))->notes,
              ElementsAre("checkpoint.interval: 0 -> 3"));
  const auto refused = going_on(Job({"optimizer.lr=0.5", "training.seed=1"}));
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_EQ(
      refused.status().message(),
      "this is another run than the one in " + run() +
          ":\n  training.seed: 42 -> 1\n  optimizer.lr: 0.001 -> 0.5\nundo these changes, give "
          "the run another job.name, or start anew with --fresh (the old run is moved aside)");
}

JobSpec MistralJob(JobSpec job) {
  job.model = {.architecture = Architecture::kMistral,
               .vocab_size = 256,
               .hidden_size = 64,
               .num_blocks = 2,
               .num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 16,
               .ffn_size = 96,
               .max_positions = 64};
  return job;
}

// A run of before windows were trained says nothing of its own, which hid nothing.
TEST_F(GoingOn, TakesAWindowThatWasNotStatedIfItHidesNothing) {
  JobSpec job = MistralJob(Job());
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  JobSpec now = job;
  now.model.window = job.training.seq_len;
  const auto going_on = [&] {
    return Continue(now, Data(job), PreviousRun{job, record}, std::nullopt);
  };
  EXPECT_TRUE(going_on().ok()) << going_on().status();
  now.model.window = job.training.seq_len - 1;
  EXPECT_THAT(going_on().status().message(),
              HasSubstr(absl::StrCat("model.sliding_window:  -> ", now.model.window)));
  // A window that is taken away is seen, too.
  std::swap(job, now);
  EXPECT_THAT(going_on().status().message(),
              HasSubstr(absl::StrCat("model.sliding_window: ", job.model.window, " -> not there")));
}

// A cosine decays until training.steps unless told otherwise.
TEST_F(GoingOn, SaysHowToGoOnAlongTheSameCurveWithOtherSteps) {
  const auto resolved = [&](std::vector<std::string> sets) {
    sets.emplace_back("lr_scheduler.type=cosine");
    return Resolve(Job(std::move(sets)), Layout{});
  };
  const JobSpec job = resolved({});
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  for (const std::string steps : {"12", "40"}) {
    const JobSpec other = resolved({"training.steps=" + steps});
    EXPECT_THAT(
        Continue(other, Data(job), PreviousRun{job, record}, std::nullopt).status().message(),
        HasSubstr("lr_scheduler.decay_steps: 20 -> " + steps +
                  " (it follows training.steps unless it is given; to go on along the same "
                  "curve, set lr_scheduler.decay_steps: 20)"));
    const JobSpec cured = resolved({"training.steps=" + steps, "lr_scheduler.decay_steps=20"});
    const auto going_on = Continue(cured, Data(job), PreviousRun{job, record}, std::nullopt);
    EXPECT_TRUE(going_on.ok()) << going_on.status();
  }
}

TEST_F(GoingOn, NoticesDataThatChangedAndDataThatOnlyMoved) {
  const JobSpec job = Job();
  const RunRecord record{.weft_version = Version(), .data = Data(job)};
  std::filesystem::copy(folder_.path() + "/corpus.txt", folder_.path() + "/moved.txt");
  const JobSpec moved = Job({"data.train=[{path: moved.txt}]"});
  const auto accepted = Continue(moved, Data(moved), PreviousRun{job, record}, std::nullopt);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_EQ(accepted->notes.size(), 1);

  folder_.Write("corpus.txt", std::string(4000, 'b'));
  const auto refused = Continue(job, Data(job), PreviousRun{job, record}, std::nullopt);
  EXPECT_THAT(refused.status().message(), HasSubstr("corpus.txt: its content changed: 4000:"));
}

TEST_F(GoingOn, GoesOnFromItsOwnCheckpointsAndKnowsTheOnesBefore) {
  const JobSpec job = Job();
  for (const int64_t step : {5, 10, 15, 20}) Save(job, step, kOwn, run(), step / 5);
  const auto going_on = GoOn(job, Previous(job), 20);
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_EQ(going_on->after_step, 20);
  EXPECT_EQ(going_on->run.id, kOwn);
  EXPECT_EQ(going_on->run.mathematics.at("optimizer.lr"), "0.001");
  EXPECT_EQ(going_on->last_generation, 4);
  ASSERT_EQ(going_on->older.size(), 2u);
  EXPECT_EQ(going_on->older[0].folder, CheckpointFolder(job) + "/step-15");
  EXPECT_EQ(going_on->older[1].step, 10);
}

TEST_F(GoingOn, GivesARunThatBeginsANameOfItsOwn) {
  const auto first = GoOn(Job());
  const auto second = GoOn(Job());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->run.id.size(), 16u);
  EXPECT_NE(first->run.id, second->run.id);
}

// Another job, another run: whatever the first has saved is neither loaded nor pruned.
TEST_F(GoingOn, RefusesAFolderThatIsAnotherRuns) {
  const JobSpec job = Job({"checkpoint.folder=" + folder_.path() + "/shared"});
  Save(job, 60, kOther, "/runs/other");
  for (const bool known : {false, true}) {
    const auto refused = known ? GoOn(job, Previous(job)) : GoOn(job);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr(folder_.path() + "/shared"), HasSubstr("step-60"),
                      HasSubstr("another run's (/runs/other)"), HasSubstr("this run is " + run())));
  }
  const auto anew =
      GoOn(Job({"checkpoint.folder=" + folder_.path() + "/shared", "checkpoint.resume=none"}));
  EXPECT_FALSE(anew.ok());
  // Beside the run's own it is left alone.
  Save(job, 10, kOwn, run());
  const auto going_on = GoOn(job, Previous(job));
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_EQ(going_on->after_step, 10);
  EXPECT_THAT(going_on->passed_over, ElementsAre("step-60 is another run's (/runs/other)"));
}

TEST_F(GoingOn, RefusesAFolderOfStrangers) {
  const std::string folder = folder_.path() + "/titan";
  const JobSpec job = Job({"checkpoint.folder=" + folder});
  for (const char* name : {"/step-5", "/step-7", "/step-9"}) {
    std::filesystem::create_directories(folder + name);
  }
  const auto refused = GoOn(job);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("step-9, step-7, step-5"), HasSubstr("another program's")));
  // Folders that lay there when the run already had its own are no reason to stop.
  Save(job, 10, kOwn, run());
  const auto going_on = GoOn(job, Previous(job));
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_THAT(going_on->damaged, IsEmpty());
  EXPECT_EQ(going_on->passed_over.size(), 3u);
}

// resolved.yaml may be removed; the checkpoints still say what they are of.
TEST_F(GoingOn, HoldsTheJobAgainstTheManifestWhereResolvedYamlIsMissing) {
  Save(Job(), 10, kOwn, run());
  const auto same = GoOn(Job());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->after_step, 10);
  EXPECT_EQ(same->run.id, kOwn) << "it is the same run";
  for (const std::string change : {"model.n_layer=1", "model.n_head=1", "optimizer.lr=0.5",
                                   "training.seed=1", "training.global_batch_size=16"}) {
    const auto refused = GoOn(Job({change}));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << change;
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr(change.substr(0, change.find('=')) + ": "));
  }
  EXPECT_TRUE(GoOn(Job({"checkpoint.interval=3"})).ok());
}

TEST_F(GoingOn, SeesAWindowThatComesOrGoesInTheManifest) {
  const JobSpec without = MistralJob(Job());
  JobSpec with = without;
  with.model.window = without.training.seq_len / 2;
  for (const bool comes : {true, false}) {
    Save(comes ? without : with, 10, kOwn, run());
    const auto refused = GoOn(comes ? with : without);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("model.sliding_window: "));
    std::filesystem::remove_all(CheckpointFolder(with));
  }
}

TEST_F(GoingOn, NeverBeginsAnewWhereSomethingWasSaved) {
  const JobSpec job = Job();
  const std::string folder = CheckpointFolder(job);
  Save(job, 50, kOwn, run());
  Save(job, 60, kOwn, run());
  for (const char* step : {"/step-50", "/step-60"}) Tear(folder + step);
  for (const auto& previous : {std::optional<PreviousRun>(), std::optional(Previous(job))}) {
    const auto damaged = GoOn(job, previous, 60);
    EXPECT_EQ(damaged.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(damaged.status().message()),
        AllOf(HasSubstr("step 60 was saved, nothing usable is left in " + folder),
              HasSubstr("step-60: rank-00000.safetensors: 20 bytes"), HasSubstr("--fresh")));
  }
  EXPECT_TRUE(std::filesystem::exists(folder + "/step-50"));
  std::filesystem::remove_all(folder);
  const auto gone = GoOn(job, Previous(job), 60);
  EXPECT_THAT(std::string(gone.status().message()),
              HasSubstr("step 60 was saved, nothing usable is left in " + folder +
                        " (no checkpoint of the run is there)"));
  const auto moved = GoOn(Job({"checkpoint.folder=elsewhere"}), Previous(job), 60);
  EXPECT_THAT(std::string(moved.status().message()),
              HasSubstr("nothing usable is left in " + run() +
                        "/elsewhere (no checkpoint of the "
                        "run is there; checkpoint.folder was " +
                        folder));
  EXPECT_TRUE(GoOn(Job({"checkpoint.resume=none"}), Previous(job), 60).ok());
  EXPECT_TRUE(GoOn(job, Previous(job)).ok()) << "it never saved";
}

// Runs of a weft whose default was no checkpoint before the end.
TEST_F(GoingOn, TakesTheIntervalThatAutoSettlesOnInAFolderThatHadNone) {
  const JobSpec before = Job({"checkpoint.interval=0"});
  const RunRecord record{.weft_version = Version(), .data = Data(before)};
  auto file = ReadJobText(kGoodJob, folder_.job(),
                          {.sets = {"cluster.slots=1", "parallelism.dp=1", "parallelism.pp=1"}});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  file->SettleInterval(*plan);
  const JobSpec now = Resolve(file->job, Layout{.micro_batch_size = 8});
  const auto going_on = Continue(now, Data(now), PreviousRun{before, record}, std::nullopt);
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_THAT(going_on->notes, ElementsAre("checkpoint.interval: 0 -> 20"));
}

TEST_F(GoingOn, RemembersTheLastSavedStepByItsEvents) {
  const RunPaths paths = PathsOf(Job());
  LinesLeftOut left_out;
  EXPECT_EQ(LastSavedStep(paths, &left_out), std::nullopt);
  std::filesystem::create_directories(paths.folder);
  std::ofstream(paths.events()) << "{\"event\":\"committed\",\"step\":50,\"folder\":\"step-50\"}\n"
                                << "{\"event\":\"committed\",\"step\":60,\"folder\":\"step-60\"}\n"
                                << "{\"event\":\"not_saved\",\"step\":70,\"reason\":"
                                   "\"\\\"committed\\\"\"}\n{\"event\":\"comm";
  EXPECT_EQ(LastSavedStep(paths, &left_out), 60);
  EXPECT_EQ(left_out.count, 1);
  // Lines whose values are of other kinds tell of no commit; one that is no JSON is named.
  std::ofstream(paths.events(), std::ios::app)
      << "itt\n{\"event\":[[]],\"step\":61}\n{\"event\":\"committed\",\"step\":\"62\"}\n";
  EXPECT_EQ(LastSavedStep(paths, &left_out), 60);
  EXPECT_THAT(left_out.Text(), HasSubstr("events.jsonl: line at byte "));
}

TEST_F(GoingOn, ComparesTheDisksRoomWithWhatWillBeSaved) {
  const JobSpec job = Job({"checkpoint.interval=1"});
  std::filesystem::create_directories(CheckpointFolder(job));
  std::string note;
  EXPECT_EQ(CheckRoom(job, {kOwn, {}}, 1000, &note), absl::OkStatus());
  EXPECT_EQ(note, "");
  const absl::Status refused = CheckRoom(job, {kOwn, {}}, int64_t{1} << 55, &note);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("checkpoint.folder: " + CheckpointFolder(job) + " has room for "),
                    HasSubstr("but 4 checkpoints of 32"),
                    HasSubstr("set checkpoint.interval to 0 (one checkpoint, at the end)")));
  // One at the end is all that such a job saves: there is nothing to turn off.
  const absl::Status one =
      CheckRoom(Job({"checkpoint.interval=20"}), {kOwn, {}}, int64_t{1} << 55, &note);
  EXPECT_THAT(std::string(one.message()),
              AllOf(HasSubstr("but 1 checkpoint of 32"), Not(HasSubstr("interval to 0"))));
}

TEST_F(GoingOn, TakesAChangeOfTheOptimizersSettingsOnAPersonsWord) {
  const JobSpec job = Job();
  Save(job, 60, kOwn, run());
  const JobSpec other = Job({"optimizer.lr=0.5", "optimizer.weight_decay=0"});
  const auto refused = GoOn(other, Previous(job), 60);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("--accept-changes optimizer.lr,optimizer.weight_decay"),
                    HasSubstr("model.init_from: " + CheckpointFolder(job) + "/step-60")));
  const std::vector<std::string> both = {"optimizer.lr", "optimizer.weight_decay"};
  const std::vector<std::string> said = {"after step 60: optimizer.lr: 0.001 -> 0.5",
                                         "after step 60: optimizer.weight_decay: 0.1 -> 0"};
  const auto accepted = Continue(other, Data(other), Previous(job), 60, both);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_EQ(accepted->after_step, 60);
  EXPECT_EQ(accepted->run.id, kOwn) << "it is the same run";
  EXPECT_THAT(accepted->run.accepted, ::testing::UnorderedElementsAreArray(said));
  EXPECT_EQ(accepted->run.mathematics.at("optimizer.lr"), "0.5");
  // It needs no repeating, and is remembered.
  PreviousRun now = Previous(other);
  now.record.accepted = accepted->run.accepted;
  const auto again = GoOn(other, now, 60);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->run.accepted, accepted->run.accepted);
  // One word is not enough for two changes, nor for what a run cannot survive.
  EXPECT_FALSE(Continue(other, Data(other), Previous(job), 60, {"optimizer.lr"}).ok());
  const JobSpec seed = Job({"training.seed=1", "optimizer.lr=0.5"});
  const auto never = Continue(seed, Data(seed), Previous(job), 60, both);
  EXPECT_FALSE(never.ok());
  EXPECT_THAT(std::string(never.status().message()), Not(HasSubstr("--accept-changes")));
}

// --fresh: the old run's own go aside, whoever else keeps something there.
TEST_F(GoingOn, MovesAsideNothingButTheRunsOwn) {
  const std::string folder = folder_.path() + "/shared";
  const JobSpec job = Job({"checkpoint.folder=" + folder});
  std::filesystem::create_directories(folder + "/step-9");
  Save(job, 60, kOther, "/runs/other");
  Save(job, 10, kOwn, run());
  ASSERT_TRUE(RunLock::Take(run()).ok());
  RunRecord record;
  record.run_id = kOwn;
  ASSERT_TRUE(WriteWhole(run() + "/resolved.yaml", ResolvedText(job, record)).ok());
  EXPECT_EQ(*MoveAside(job, run(), kOwn), run() + ".old-1");
  EXPECT_TRUE(std::filesystem::exists(folder + "/step-9"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/step-60/manifest.json"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/step-10"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/old-1/step-10/manifest.json"));
}

TEST_F(GoingOn, LetsOneRunUseACheckpointFolderAtATime) {
  const std::string folder = folder_.path() + "/shared";
  const auto first = RunLock::TakeCheckpoints(folder);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->WriteHolder(4242).ok());
  const auto second = RunLock::TakeCheckpoints(folder);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(folder + " is in use by another weft (pid 4242)"),
                    HasSubstr("checkpoint.folder")));
}

}  // namespace
}  // namespace weft
