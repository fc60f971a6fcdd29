// Files that never answer, and who is named for it. Budgets of 20 and 30 s are waited for, so these
// tests have their time beside others.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/end_to_end/lacking.h"
#include "tests/hangs/hung_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// The run of `call` that never returns in rank 1 of a generation.
void ExpectHangOfAFile(const std::string& call, const std::string& phase, bool resumes) {
  TinyRun run;
  const std::string flag = std::filesystem::path(run.job_path()).parent_path() / "hanging";
  if (resumes) {
    const std::unique_ptr<Child> first = run.Run();
    run.WaitForStep(15);
    first->Signal(SIGINT);
    ASSERT_EQ(TinyRun::Finish(*first, 240).exit_code, 0);
    std::filesystem::remove(run.run_folder() + "/logs/weftd.log");
  }
  std::ofstream(flag) << "now";
  const std::unique_ptr<Child> weft = run.Run(
      {"--set", "training.steps=" + std::string(resumes ? "60" : "100000"), "--set",
       "cluster.env={LD_PRELOAD: " WEFT_HANGING_FILE ", HANGING_RANK: \"1\", HANGING_CALL: " +
           call + ", HANGING_FLAG: " + flag + "}"});
  const Verdict verdict = AwaitVerdict(run, 180);
  EXPECT_EQ(verdict.rank, 1) << verdict.line;
  EXPECT_EQ(verdict.phase, phase) << verdict.line;
  std::printf("%s of a file: %s\n", call.c_str(), verdict.line.c_str());
}

TEST(FileHangs, OfAReadThatNeverReturnsAreNamed) {
  ExpectHangOfAFile("open", "load", /*resumes=*/true);
}

TEST(FileHangs, OfASaveThatNeverReturnsAreNamed) {
  ExpectHangOfAFile("fsync", "save", /*resumes=*/false);
}

// A file system of its own in a file, which can be frozen; thawed and unmounted at the end.
class FrozenDisk {
 public:
  explicit FrozenDisk(const std::string& folder) : folder_(folder) {
    std::filesystem::create_directories(folder);
    const std::string image = folder + ".image";
    const std::string make = "truncate -s 64M " + image + " && mkfs.ext4 -q " + image +
                             " && mount -o loop " + image + " " + folder + " 2>/dev/null";
    mounted_ = std::system(make.c_str()) == 0;
  }
  ~FrozenDisk() {
    if (!mounted_) return;
    Thaw();
    umount2(folder_.c_str(), MNT_DETACH);
  }
  FrozenDisk(const FrozenDisk&) = delete;
  FrozenDisk& operator=(const FrozenDisk&) = delete;

  bool mounted() const { return mounted_; }
  bool Freeze() { return Ask(FIFREEZE); }
  void Thaw() { Ask(FITHAW); }

 private:
  bool Ask(unsigned long what) const {
    const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = folder >= 0 && ioctl(folder, what, 0) == 0;
    close(folder);
    return done;
  }

  const std::string folder_;
  bool mounted_ = false;
};

// All ranks write to it, so any of them may be the one; state D is what tells it.
TEST(FileHangs, OfAFrozenFileSystemAreNamedAndTheRunGoesOnOnceItThaws) {
  TinyRun run;
  FrozenDisk disk(std::filesystem::path(run.job_path()).parent_path() / "disk");
  END_FOR_WANT_OF(disk.mounted() ? "" : "mounting a file needs root and a loop device; give both");
  std::vector<std::string> arguments = Arguments("dp: 2, pp: 2, tp: 1", "100000");
  arguments.insert(
      arguments.end(),
      {"--set", "checkpoint.folder=" +
                    (std::filesystem::path(run.job_path()).parent_path() / "disk").string() +
                    "/checkpoint"});
  const std::unique_ptr<Child> weft = run.Run(arguments);
  run.WaitForStep(35);
  ASSERT_TRUE(disk.Freeze());
  const Verdict verdict = AwaitVerdict(run, 180);
  disk.Thaw();
  EXPECT_GE(verdict.rank, 0);
  EXPECT_EQ(verdict.phase, "save") << verdict.line;
  EXPECT_THAT(verdict.line, HasSubstr("state D"));
  std::printf("frozen: %s\n", verdict.line.c_str());
  EXPECT_TRUE(Eventually(180, [&] {
    const std::vector<StepMetrics> steps = run.Metrics();
    return !steps.empty() && steps.back().generation == 2;
  }));
}

}  // namespace
}  // namespace weft
