// These tests say whose a folder is, and that nothing but the run's own is replaced, moved or
// removed.
#include "checkpoint/clean_up.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/adoption.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kOwn[] = "00000000000000aa";
constexpr char kOther[] = "00000000000000bb";

class CleanUpTest : public ::testing::Test {
 protected:
  CleanUpTest() {
    std::string pattern = ::testing::TempDir() + "weft_clean_up_XXXXXX";
    root_ = mkdtemp(pattern.data());
    folder_ = root_ + "/checkpoint";
  }
  ~CleanUpTest() override { fs::remove_all(root_); }

  static Manifest ManifestOf(const std::string& run_id, int64_t generation, int64_t step) {
    Manifest manifest;
    manifest.run_id = run_id;
    manifest.run_folder = run_id == kOwn ? "/runs/own" : "/runs/other";
    manifest.generation = generation;
    manifest.step = step;
    return manifest;
  }
  Manifest Stage(const std::string& run_id, int64_t generation, int64_t step) {
    Manifest manifest = ManifestOf(run_id, generation, step);
    const std::vector<float> values = {1, 2, static_cast<float>(step)};
    const auto shard = WriteShard(StageFolder(folder_, run_id, generation, step), 0,
                                  {{BoxToSave{"w", {3}, {0}, {3}, values}}});
    EXPECT_TRUE(shard.ok()) << shard.status();
    if (shard.ok()) manifest.shards = {*shard};
    return manifest;
  }
  absl::Status Save(const std::string& run_id, int64_t generation, int64_t step) {
    return CommitCheckpoint(folder_, Stage(run_id, generation, step));
  }
  void SaveOwn(std::vector<int64_t> steps, int64_t generation = 1) {
    for (const int64_t step : steps) ASSERT_EQ(Save(kOwn, generation, step), absl::OkStatus());
  }
  // A step folder as torchtitan makes them.
  void MakeStrangers(int64_t step) {
    fs::create_directories(StepFolder(folder_, step));
    std::ofstream(StepFolder(folder_, step) + "/__0_0.distcp") << "not weft's";
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  CleanedUp Clean(int keep, int64_t generation = 1, int64_t step = 1000) {
    return CleanUp(folder_, {kOwn, generation, step}, keep);
  }

  std::string root_;
  std::string folder_;
};

TEST_F(CleanUpTest, KeepsTheNewestAndRemovesOldOnesAndStages) {
  SaveOwn({10, 20, 30, 40, 50});
  Stage(kOwn, 1, 45);
  Stage(kOwn, 1, 60);  // being written
  const CleanedUp done = Clean(3, 1, 50);
  EXPECT_THAT(done.removed, ElementsAre("step-20", "step-10"));
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_THAT(Names(), ElementsAre(StartsWith(".stage."), "step-30", "step-40", "step-50"));
  EXPECT_THAT(Clean(3, 1, 60).removed, IsEmpty());
  EXPECT_THAT(Names(), ElementsAre("step-30", "step-40", "step-50"));
}

TEST_F(CleanUpTest, NeverCountsADamagedOneAsKept) {
  SaveOwn({10, 20, 30, 40, 50});
  fs::resize_file(folder_ + "/step-50/rank-00000.safetensors", 9);
  // Its manifest is torn, but still says whose it is.
  fs::resize_file(folder_ + "/step-30/manifest.json", 150);
  fs::resize_file(folder_ + "/step-10/manifest.json", 150);
  // 40 and 20 are whole; 50 and 30 are newer than the older of them and stay to be looked at.
  EXPECT_THAT(Clean(2).removed, ElementsAre("step-10"));
  EXPECT_THAT(Names(), ElementsAre("step-20", "step-30", "step-40", "step-50"));
}

TEST_F(CleanUpTest, TouchesNothingThatIsNotTheRunsOwn) {
  SaveOwn({100, 200, 300});
  for (const int64_t step : {5, 7, 9, 400}) MakeStrangers(step);
  ASSERT_EQ(Save(kOther, 3, 50), absl::OkStatus());
  Stage(kOther, 3, 60);
  ASSERT_EQ(Save("", 1, 60), absl::OkStatus());  // of before manifests named their run
  const std::vector<std::string> foreign = {"step-",       "step-x",      "step-010",
                                            "step--1",     "step-1.",     "notes",
                                            "step-10.old", ".stage.1.20", ".old.x"};
  for (const std::string& name : foreign) fs::create_directory(folder_ + "/" + name);
  std::vector<std::string> expected = Names();
  expected.erase(std::find(expected.begin(), expected.end(), "step-100"));
  const CleanedUp done = Clean(2);
  EXPECT_THAT(done.removed, ElementsAre("step-100"));
  EXPECT_THAT(done.problems, IsEmpty());
  EXPECT_EQ(Names(), expected);
  EXPECT_THAT(RemoveStages(folder_, kOwn).problems, IsEmpty());
  EXPECT_EQ(Names(), expected);
}

TEST_F(CleanUpTest, OfARunWithoutANameRemovesNothing) {
  ASSERT_EQ(Save("", 1, 10), absl::OkStatus());
  for (const int64_t step : {20, 30}) ASSERT_EQ(Save("", 1, step), absl::OkStatus());
  EXPECT_THAT(CleanUp(folder_, {"", 1, 30}, 2).removed, IsEmpty());
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20", "step-30"));
}

// A run that was told to begin anew (checkpoint.resume: none) counts steps from 1 again.
TEST_F(CleanUpTest, KeepsTheLowStepsOfALaterGeneration) {
  SaveOwn({10, 20, 30}, 1);
  SaveOwn({5}, 2);
  EXPECT_THAT(Clean(2, 2).removed, ElementsAre("step-20", "step-10"));
  EXPECT_THAT(Names(), ElementsAre("step-30", "step-5"));
}

TEST_F(CleanUpTest, OfAnOldGenerationStopsItself) {
  SaveOwn({10, 20, 30}, 1);
  SaveOwn({40}, 2);
  Stage(kOwn, 2, 50);
  const std::vector<std::string> before = Names();
  const CleanedUp done = Clean(2, 1);
  EXPECT_TRUE(done.stopped);
  EXPECT_THAT(done.problems, ElementsAre(HasSubstr("step-40 is of generation 2")));
  EXPECT_EQ(Names(), before);
}

TEST_F(CleanUpTest, OfAnOldGenerationDoesNotPublishEither) {
  SaveOwn({40}, 2);
  const absl::Status ghost = Save(kOwn, 1, 50);
  EXPECT_EQ(ghost.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(ghost.message()),
              HasSubstr("step-40 is of generation 2 of this run, this is generation 1"));
  EXPECT_THAT(Names(), Not(Contains("step-50")));
}

TEST_F(CleanUpTest, NeverPublishesInThePlaceOfWhatIsNotTheRunsOwn) {
  MakeStrangers(5);
  ASSERT_EQ(Save(kOther, 9, 10), absl::OkStatus());
  const absl::Status strangers = Save(kOwn, 1, 5);
  EXPECT_EQ(strangers.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(strangers.message()), HasSubstr("step-5 is another program's"));
  const absl::Status others = Save(kOwn, 1, 10);
  EXPECT_EQ(others.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(others.message()),
      AllOf(HasSubstr("step-10 is another run's (/runs/other)"), HasSubstr("checkpoint.folder")));
  EXPECT_TRUE(fs::exists(folder_ + "/step-5/__0_0.distcp"));
  EXPECT_EQ(VerifyCheckpoint(folder_ + "/step-10")->run_id, kOther);
  EXPECT_EQ(Save(kOwn, 1, 20), absl::OkStatus()) << "another run's generation is no newer one";
}

TEST_F(CleanUpTest, MovesAsideTheRunsOwnAlone) {
  EXPECT_EQ(*MoveCheckpointsAside(folder_, kOwn), "");
  MakeStrangers(5);
  ASSERT_EQ(Save(kOther, 3, 50), absl::OkStatus());
  EXPECT_EQ(*MoveCheckpointsAside(folder_, kOwn), "");
  SaveOwn({10, 20});
  EXPECT_EQ(*MoveCheckpointsAside(folder_, kOwn), folder_ + "/old-1");
  EXPECT_THAT(Names(), ElementsAre("old-1", "step-5", "step-50"));
  EXPECT_TRUE(VerifyCheckpoint(folder_ + "/old-1/step-20").ok());
  SaveOwn({10});
  EXPECT_EQ(*MoveCheckpointsAside(folder_, kOwn), folder_ + "/old-2");
}

TEST_F(CleanUpTest, ReadsWhoseAFolderIsFromATornManifestToo) {
  SaveOwn({10});
  const std::string manifest = folder_ + "/step-10/manifest.json";
  fs::resize_file(manifest, fs::file_size(manifest) / 2);
  EXPECT_FALSE(VerifyCheckpoint(folder_ + "/step-10").ok());
  const std::optional<Owner> owner = OwnerOf(folder_ + "/step-10");
  ASSERT_TRUE(owner.has_value());
  EXPECT_EQ(owner->run_id, kOwn);
  EXPECT_EQ(owner->run_folder, "/runs/own");
  EXPECT_EQ(owner->generation, 1);
  fs::remove(manifest);
  EXPECT_FALSE(OwnerOf(folder_ + "/step-10").has_value());
  std::ofstream(manifest) << "{\"manifest_version\": 2, \"name\": \"a browser's extension\"}";
  EXPECT_FALSE(OwnerOf(folder_ + "/step-10").has_value());
}

// A reader still holds the folder: a mount point stands for what NFS calls busy or not empty.
TEST_F(CleanUpTest, GoesOnBesideWhatCannotBeRemovedAndTriesItAgain) {
  SaveOwn({10, 20, 30, 40});
  const std::string busy = folder_ + "/step-20/held";
  fs::create_directory(busy);
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("weft_test", busy.c_str(), "tmpfs", 0, "size=16k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  }
  const CleanedUp done = Clean(2);
  EXPECT_THAT(done.problems, ElementsAre(AllOf(HasSubstr("20"), HasSubstr("busy"))));
  EXPECT_THAT(Names(), Not(Contains("step-10")));
  EXPECT_THAT(Names(), ::testing::IsSupersetOf({"step-30", "step-40"}));
  fs::path held;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.path().filename() == "held") held = entry.path();
  }
  EXPECT_EQ(umount2(held.c_str(), MNT_DETACH), 0) << held;
  EXPECT_THAT(Clean(2).problems, IsEmpty());
  EXPECT_THAT(Names(), ElementsAre("step-30", "step-40"));
}

// A run folder was copied: what the copy finds there is its own from then on.
TEST_F(CleanUpTest, ACopyTakesTheCheckpointsThatWereCopiedAndNoOthers) {
  constexpr char kCopy[] = "00000000000000cc";
  SaveOwn({10, 20});
  ASSERT_EQ(Save(kOther, 1, 30), absl::OkStatus());
  Stage(kOwn, 2, 40);
  // A shard is linked, as by `cp -al`: nothing of the original's may change.
  const std::string manifest = StepFolder(folder_, 20) + "/manifest.json";
  fs::create_hard_link(manifest, root_ + "/original.json");
  const Manifest before = CheckManifest(StepFolder(folder_, 20)).value();
  const Adopted adopted = AdoptCheckpoints(folder_, kOwn, kCopy, "/runs/copy");
  EXPECT_THAT(adopted.problems, IsEmpty());
  EXPECT_THAT(adopted.steps, ElementsAre("step-20", "step-10"));
  const Manifest after = VerifyCheckpoint(StepFolder(folder_, 20)).value();
  EXPECT_EQ(after.run_id, kCopy);
  EXPECT_EQ(after.run_folder, "/runs/copy");
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.shards[0].xxh3, before.shards[0].xxh3);
  EXPECT_EQ(OwnerOf(StepFolder(folder_, 30))->run_id, kOther);
  EXPECT_FALSE(fs::exists(StageFolder(folder_, kOwn, 2, 40)));
  std::ifstream original(root_ + "/original.json");
  const std::string text{std::istreambuf_iterator<char>(original), {}};
  EXPECT_THAT(text, HasSubstr(kOwn));
  EXPECT_THAT(AdoptCheckpoints(folder_, kOwn, kCopy, "/runs/copy").steps, IsEmpty()) << "once";
}

}  // namespace
}  // namespace weft
