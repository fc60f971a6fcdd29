// deploy/tarball.sh makes an archive that trains on a host which has glibc, a shell and env, and
// nothing else: the very bits of this machine's own weft.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/end_to_end/lacking.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/places.h"

namespace weft {
namespace {

// Returns the command's exit code.
int Shell(const std::string& command) {
  const int status = std::system(absl::StrCat("exec >/dev/null; ", command).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string TextOf(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Returns the loss of each step, exactly.
std::vector<std::string> LossesOf(const std::string& path) {
  std::vector<std::string> losses;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("\"loss_hex\":");
    losses.push_back(at == std::string::npos ? "" : line.substr(at, line.find(',', at) - at));
  }
  return losses;
}

// Makes the root folder of a host with what any Linux has.
int MakeBareHost(const std::string& root) {
  return Shell(absl::StrReplaceAll(
      "set -e; mkdir -p ROOT/lib64 ROOT/lib/x86_64-linux-gnu ROOT/bin ROOT/usr/bin ROOT/tmp "
      "ROOT/proc "
      "ROOT/dev ROOT/root; cp -L /lib64/ld-linux-x86-64.so.2 ROOT/lib64/; "
      "for each in c m dl pthread rt resolv util; do cp -L /lib/x86_64-linux-gnu/lib$each.so.[0-9] "
      "ROOT/lib/x86_64-linux-gnu/; done; cp -L /bin/sh ROOT/bin/sh; cp /usr/bin/env ROOT/usr/bin/",
      {{"ROOT", root}}));
}

TEST(Tarball, TrainsWhereThereIsNothingButGlibc) {
  END_FOR_WANT_OF(Shell("command -v patchelf") == 0 ? "" : "no patchelf; install patchelf");
  END_FOR_WANT_OF(Shell("unshare --mount --pid --fork true") == 0 ? "" : "no namespaces; be root");
  const JobFolder folder;
  const std::string job = JobWith("steps: 20", "steps: 6");
  const std::string root = folder.path() + "/host";
  ASSERT_EQ(MakeBareHost(root), 0);
  ASSERT_EQ(Shell(absl::StrCat("bash ", SourcePath("/deploy/tarball.sh "), BinaryPath(), " ",
                               folder.path(), " && tar -xzf ", folder.path(), "/weft-*.tar.gz -C ",
                               root, "/root")),
            0);
  folder.Write("job.yaml", job);
  std::ofstream(root + "/root/job.yaml") << job;
  std::ofstream(root + "/root/corpus.txt") << TextOf(folder.path() + "/corpus.txt");
  const Ran ours = RunWeft(folder, "run job.yaml");
  ASSERT_EQ(ours.exit_code, 0) << ours.err;

  const std::string log = folder.path() + "/there.log";
  EXPECT_EQ(Shell(absl::StrReplaceAll(
                "unshare --mount --pid --fork --kill-child sh -c 'mount -t proc proc ROOT/proc && "
                "mount --rbind /dev ROOT/dev && exec env -i HOME=/root PATH=$PATH timeout 100 "
                "chroot ROOT "
                "/bin/sh -c \""
                "cd /root && ./weft-*/bin/weft run job.yaml\"' >LOG 2>&1",
                {{"ROOT", root}, {"LOG", log}})),
            0)
      << TextOf(log);
  const std::string metrics = "/outputs/small/metrics.jsonl";
  const std::vector<std::string> losses = LossesOf(root + "/root" + metrics);
  EXPECT_EQ(losses.size(), 6U) << TextOf(log);
  EXPECT_EQ(losses, LossesOf(folder.path() + metrics));
}

}  // namespace
}  // namespace weft
