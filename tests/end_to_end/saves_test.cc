// Disks that are full, folders that are somebody else's, checkpoints that are gone: through the
// real binaries. Nothing that is not the run's is touched, training goes on as long as it can, and
// the words name the disk, the folder and the cure.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/end_to_end/lacking.h"
#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A small disk at `folder`, in a mount namespace of this process and its children: nothing stays
// mounted whatever happens. Returns why not where that is not permitted.
std::string MountSmallDisk(const std::string& folder, const char* options) {
  fs::create_directories(folder);
  const bool is_mounted = unshare(CLONE_NEWNS) == 0 &&
                          mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                          mount("weft_test", folder.c_str(), "tmpfs", 0, options) == 0;
  if (is_mounted) return "";
  return std::string("mounting a small tmpfs needs root; be it: ") + std::strerror(errno);
}

// Takes all the room there is.
void Fill(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  const std::string block(4096, 'x');
  while (write(fd, block.data(), block.size()) > 0) continue;
  close(fd);
}

void ExpectUndisturbed(const TinyRun& run) {
  const std::map<int64_t, std::string> expected = UndisturbedCurve();
  const std::map<int64_t, std::string> curve = run.Curve();
  for (const auto& [step, loss_hex] : expected) EXPECT_EQ(curve.at(step), loss_hex) << step;
}

bool Says(const Child& weft, const std::string& words, double timeout_s = kPatienceS) {
  return Eventually(timeout_s, [&] { return weft.Stdout().find(words) != std::string::npos; });
}

TEST(FullDisk, OfCheckpointsIsLoudAndTrainingGoesOnToTheSameBits) {
  TinyRun run;
  const std::string disk = fs::path(run.job_path()).parent_path() / "disk";
  END_FOR_WANT_OF(MountSmallDisk(disk, "size=16m"));
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "checkpoint.folder=" + disk, "--set", "training.steps=200"});
  ASSERT_TRUE(Says(*weft, "saved step-20")) << weft->Stdout() << weft->Stderr();
  Fill(disk + "/full");
  ASSERT_TRUE(Says(*weft, "NOT SAVED: step ")) << weft->Stdout() << weft->Stderr();
  fs::remove(disk + "/full");
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 120);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("No space left on device"),
                    HasSubstr("the last checkpoint is of step "), HasSubstr("saved step-200")));
  EXPECT_THAT(ReadText(run.run_folder() + "/events.jsonl"), HasSubstr("\"event\":\"not_saved\""));
  EXPECT_EQ(run.Metrics().back().generation, 1) << "nobody was restarted for it";
  for (const auto& entry : fs::directory_iterator(disk)) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".stage."))) << "stages are gone";
  }
  ExpectUndisturbed(run);
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

// Journal, metrics, logs and checkpoints: the last save waits until there is room.
TEST(FullDisk, OfTheRunFolderKeepsTrainingAndLosesNoStep) {
  TinyRun run;
  END_FOR_WANT_OF(MountSmallDisk(run.run_folder(), "size=20m"));
  const std::unique_ptr<Child> weft = run.Run({"--set", "training.steps=100"});
  ASSERT_TRUE(Says(*weft, "saved step-20")) << weft->Stdout() << weft->Stderr();
  Fill(run.run_folder() + "/full");
  ASSERT_TRUE(Says(*weft, "NOT SAVED: step ")) << weft->Stdout() << weft->Stderr();
  ASSERT_TRUE(Says(*weft, "NOT SAVED: step 100")) << weft->Stdout() << weft->Stderr();
  fs::remove(run.run_folder() + "/full");
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("saved step-100"));
  EXPECT_EQ(run.Metrics().size(), 100u) << "no line was lost";
  const std::string events = ReadText(run.run_folder() + "/events.jsonl");
  EXPECT_THAT(events, AllOf(HasSubstr("\"event\":\"not_saved\",\"step\":100"),
                            HasSubstr("\"event\":\"committed\",\"step\":100"),
                            HasSubstr("\"phase\":\"COMPLETED\"")));
  ExpectUndisturbed(run);
  EXPECT_EQ(umount2(run.run_folder().c_str(), MNT_DETACH), 0);
}

// The run says its words to a file there.
TEST(FullDisk, OfItsWordsLosesNoneOfThem) {
  TinyRun run;
  const std::string folder = fs::path(run.job_path()).parent_path(), disk = folder + "/disk";
  END_FOR_WANT_OF(MountSmallDisk(disk, "size=256k"));
  fs::create_symlink(disk + "/words", folder + "/start-1.out");
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "training.steps=200", "--set", "metrics.log_freq=1", "--set",
               "checkpoint.interval=200"});
  ASSERT_TRUE(Says(*weft, "step 20/")) << weft->Stdout() << weft->Stderr();
  Fill(disk + "/full");
  run.WaitForStep(100);
  const std::string words = weft->Stdout();
  EXPECT_THAT(words, Not(HasSubstr("step 90/"))) << "there was room for them";
  fs::remove(disk + "/full");
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 120);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, words.size()), words) << "nothing is written twice";
  for (int step = 1; step <= 200; ++step) {
    EXPECT_THAT(outcome.out, HasSubstr("\nstep " + std::to_string(step) + "/200 ")) << step;
  }
  EXPECT_THAT(outcome.out, HasSubstr("\ndone: step 200 of 200"));
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST(FullDisk, BeforeTheStartIsNamed) {
  TinyRun run;
  const std::string disk = fs::path(run.job_path()).parent_path() / "disk";
  END_FOR_WANT_OF(MountSmallDisk(disk, "size=4m"));
  const TinyRun::Outcome outcome = run.RunToEnd({"--set", "checkpoint.folder=" + disk});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("checkpoint.folder: " + disk + " has room for "),
                                 HasSubstr("checkpoint.keep_latest_k")));
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

// EIO is no full disk: whether bytes or their way to the disk are lost, only that save is.
TEST(FailingDisk, IsLoudAndTheNextSaveSucceedsWithTheSameLosses) {
  TinyRun run;
  const std::string flag = fs::path(run.job_path()).parent_path() / "failing";
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "training.steps=300", "--set",
               "cluster.env={LD_PRELOAD: " WEFT_FAILING_DISK ", FAILING_DISK: " + flag + "}"});
  ASSERT_TRUE(Says(*weft, "saved step-10")) << weft->Stdout() << weft->Stderr();
  for (const std::string call : {"write", "fsync"}) {
    std::ofstream(flag + ".part") << call;
    fs::rename(flag + ".part", flag);
    ASSERT_TRUE(Eventually(kPatienceS,
                           [&] {
                             return ReadText(run.run_folder() + "/events.jsonl")
                                        .find(call + " failed: Input/output") != std::string::npos;
                           }))
        << weft->Stdout() << weft->Stderr();
  }
  fs::remove(flag);
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 120);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("NOT SAVED: step "), HasSubstr("Input/output error"),
                    HasSubstr("the last checkpoint is of step "), HasSubstr("saved step-300")));
  EXPECT_EQ(run.Metrics().back().generation, 1) << "nobody was restarted for it";
  EXPECT_THAT(run.Checkpoints(), testing::Contains("step-300"));
  for (const auto& entry : fs::directory_iterator(run.run_folder() + "/checkpoint")) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".stage."))) << "stages are gone";
  }
  ExpectUndisturbed(run);
  run.ExpectNothingLeft();
}

// Lines wait in memory. Where they could all be written later, nothing is amiss.
TEST(FailingDisk, OfMetricsIsSaidAndCountedWhereLinesAreLost) {
  for (const bool heals : {true, false}) {
    SCOPED_TRACE(heals);
    TinyRun run;
    const std::string flag = fs::path(run.job_path()).parent_path() / "failing";
    const std::unique_ptr<Child> weft =
        run.Run({"--set", "training.steps=150", "--set",
                 "cluster.env={LD_PRELOAD: " WEFT_FAILING_DISK ", FAILING_DISK: " + flag + "}"});
    run.WaitForStep(15);
    std::ofstream(flag + ".part") << "lines";
    fs::rename(flag + ".part", flag);
    ASSERT_TRUE(Says(*weft, "metrics.jsonl: cannot append a line: Input/output error"))
        << weft->Stdout() << weft->Stderr();
    if (heals) fs::remove(flag);
    const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
    EXPECT_EQ(outcome.exit_code, heals ? 0 : 1) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("done: step 150 of 150"));
    const std::string lost = std::to_string(150 - run.Metrics().size());
    if (heals) {
      EXPECT_THAT(outcome.out, HasSubstr("metrics.jsonl has all lines again"));
      EXPECT_EQ(lost, "0");
    } else {
      EXPECT_THAT(outcome.err, HasSubstr("lacks the lines of " + lost + " steps"));
    }
    run.ExpectNothingLeft();
  }
}

TEST(Folder, OfStrangersIsLeftAsItIs) {
  TinyRun run;
  const std::string titan = fs::path(run.job_path()).parent_path() / "titan";
  for (const char* step : {"/step-5", "/step-7", "/step-9"}) {
    fs::create_directories(titan + step);
    std::ofstream(titan + step + "/__0_0.distcp") << "torchtitan's";
  }
  for (const std::vector<std::string>& more :
       {std::vector<std::string>(), std::vector<std::string>{"--fresh"}}) {
    std::vector<std::string> arguments = {"--set", "checkpoint.folder=" + titan};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const TinyRun::Outcome outcome = run.RunToEnd(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(titan), HasSubstr("step-9, step-7, step-5")));
    EXPECT_THAT(outcome.out, Not(HasSubstr("damaged")));
  }
  for (const char* step : {"/step-5", "/step-7", "/step-9"}) {
    EXPECT_TRUE(fs::exists(titan + step + "/__0_0.distcp")) << step;
  }
}

TEST(Folder, OfAnotherRunIsRefusedByTheNamesOfBoth) {
  TinyRun run;
  const std::string shared = fs::path(run.job_path()).parent_path() / "shared";
  const std::vector<std::string> own = {"--set", "checkpoint.folder=" + shared, "--set",
                                        "training.steps=10"};
  ASSERT_EQ(run.RunToEnd(own).exit_code, 0);
  for (const std::string change : {"optimizer.lr=0.5", "model.n_head=2", "training.steps=20"}) {
    std::vector<std::string> other = own;
    other.insert(other.end(), {"--set", "job.name=other", "--set", change});
    const TinyRun::Outcome outcome = run.RunToEnd(other);
    EXPECT_EQ(outcome.exit_code, 2) << change << outcome.out;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("another run's (" + run.run_folder() + ")"),
                                   HasSubstr("this run is"), HasSubstr("/other")));
  }
  // Where resolved.yaml is gone the checkpoint itself says what it is of.
  fs::remove(run.run_folder() + "/resolved.yaml");
  std::vector<std::string> changed = own;
  changed.insert(changed.end(), {"--set", "optimizer.lr=0.5"});
  const TinyRun::Outcome refused = run.RunToEnd(changed);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("optimizer.lr: 0.001 -> 0.5"));
  const TinyRun::Outcome same =
      run.RunToEnd({"--set", "checkpoint.folder=" + shared, "--set", "training.steps=20"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("from step 10"));
}

TEST(Checkpoints, ThatAreAllGoneOrDamagedAreNoReasonToBeginAnew) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=20"}).exit_code, 0);
  const std::string checkpoints = run.run_folder() + "/checkpoint";
  for (const char* step : {"/step-10", "/step-20"}) {
    fs::resize_file(checkpoints + step + "/rank-00000.safetensors", 9);
  }
  const TinyRun::Outcome damaged = run.RunToEnd();
  EXPECT_EQ(damaged.exit_code, 2) << damaged.out;
  EXPECT_THAT(damaged.err,
              AllOf(HasSubstr("step 20 was saved, nothing usable is left"),
                    HasSubstr("step-10: rank-00000.safetensors"), HasSubstr("--fresh")));
  EXPECT_EQ(run.Checkpoints(), (std::set<std::string>{"step-10", "step-20"})) << "none is pruned";
  const TinyRun::Outcome moved = run.RunToEnd({"--set", "checkpoint.folder=elsewhere"});
  EXPECT_EQ(moved.exit_code, 2) << moved.out;
  EXPECT_THAT(moved.err, HasSubstr("checkpoint.folder was " + checkpoints));
  fs::remove_all(checkpoints);
  const TinyRun::Outcome gone = run.RunToEnd();
  EXPECT_EQ(gone.exit_code, 2) << gone.out;
  EXPECT_THAT(gone.err, HasSubstr("step 20 was saved, nothing usable is left"));
  EXPECT_EQ(run.RunToEnd({"--fresh"}).exit_code, 0);
}

TEST(AcceptedChanges, GoOnWithTheOptimizersStatesAndAreRecorded) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=20"}).exit_code, 0);
  const std::vector<std::string> changed = {"--set", "training.steps=40", "--set",
                                            "optimizer.lr=0.0005"};
  const TinyRun::Outcome refused = run.RunToEnd(changed);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--accept-changes optimizer.lr"));
  std::vector<std::string> accepted = changed;
  accepted.insert(accepted.end(), {"--accept-changes", "optimizer.lr"});
  const TinyRun::Outcome outcome = run.RunToEnd(accepted);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("from step 20"));
  EXPECT_THAT(ReadText(run.run_folder() + "/checkpoint/step-40/manifest.json"),
              HasSubstr("\"accepted[0]\": \"after step 20: optimizer.lr: 0.001 -> "));
  EXPECT_THAT(ReadText(run.run_folder() + "/resolved.yaml"), HasSubstr("after step 20: "));
  const TinyRun::Outcome wrong = run.RunToEnd({"--accept-changes", "model.n_layer"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("model.n_layer cannot change within a run"));
}

TEST(ResolvedYaml, ThatIsDamagedMayBeRemovedToGoOn) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=20"}).exit_code, 0);
  const std::string resolved = run.run_folder() + "/resolved.yaml";
  std::ofstream(resolved, std::ios::trunc) << "job: {name: [";
  const TinyRun::Outcome refused = run.RunToEnd();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr(resolved + " is damaged; remove it to go on"), HasSubstr("--fresh")));
  fs::remove(resolved);
  const TinyRun::Outcome outcome = run.RunToEnd();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("from step 20"));
  ExpectUndisturbed(run);
}

// The newest checkpoint cannot be read when it is needed, though nothing says that it is damaged: a
// folder lies where its manifest was. So nobody knows any more that it is the run's, either.
TEST(Load, ThatFailsTriesTheStepBefore) {
  TinyRun run;
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "training.global_batch_size=64", "--set", "checkpoint.interval=20"});
  run.WaitForStep(41);
  const std::string newest = run.run_folder() + "/checkpoint/step-40";
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return fs::exists(newest + "/manifest.json"); }));
  fs::remove(newest + "/manifest.json");
  fs::create_directory(newest + "/manifest.json");
  const std::vector<Found> workers = run.Processes("weft-worker");
  ASSERT_EQ(workers.size(), 4u);
  ASSERT_TRUE(KillFound(workers[1], SIGKILL));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("resuming after step 40"), HasSubstr("Is a directory"),
                                 HasSubstr("resuming after step 20"),
                                 HasSubstr("NOT SAVED: step 40"), HasSubstr("saved step-60")));
  EXPECT_TRUE(fs::exists(newest + "/rank-00003.safetensors"));
  std::map<int64_t, std::string> first;
  for (const StepMetrics& step : run.Metrics()) {
    EXPECT_EQ(first.emplace(step.step, step.loss_hex).first->second, step.loss_hex) << step.step;
  }
  EXPECT_EQ(first.size(), static_cast<size_t>(TinyRun::kSteps));
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
