// weft doctor through the real executable: on this machine, and beside programs that stand in for a
// broken installation and for a host with GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::HasSubstr;

// A file of `folder` that can be executed.
void WriteProgram(const JobFolder& folder, const std::string& name, const std::string& script) {
  folder.Write(name, "#!/bin/sh\n" + script);
  ASSERT_EQ(chmod((folder.path() + "/" + name).c_str(), 0755), 0);
}

// weft in a folder of its own, beside a weftd and a weft-worker of the same version that finds what
// `probe` says.
void Install(const JobFolder& folder, const std::string& weftd_version, const std::string& probe) {
  std::filesystem::copy(BinaryPath("/bin/weft"), folder.path() + "/weft");
  const std::string same = RunWeft(folder, "--version").out;
  WriteProgram(folder, "weftd",
               absl::StrCat("echo '", weftd_version.empty() ? same : weftd_version, "'\n"));
  WriteProgram(folder, "weft-worker",
               absl::StrCat("case \"$*\" in\n*--version*) echo '", absl::StripSuffix(same, "\n"),
                            "' ;;\n", probe, "esac\n"));
  WriteProgram(folder, "mpirun", "echo 'mpirun of the test'\n");
}

constexpr char kCpuProbe[] =
    "*--backend=cpu*) echo '{\"versions\": \"BLAS\", \"devices\": [{\"name\": \"c\", "
    "\"memory_bytes\": 1073741824}]}' ;;\n";
constexpr char kGpuProbe[] =
    "*--backend=cuda*) echo '{\"versions\": \"CUDA 13.0, no cuDNN, NCCL 2.28.9\", \"devices\": "
    "[{\"name\": \"NVIDIA H200 (sm_90)\", \"memory_bytes\": 150754820096}]}' ;;\n";
constexpr char kNoDriver[] =
    "*--backend=cuda*) echo 'weft-worker: cuda: the NVIDIA driver is missing' >&2; exit 1 ;;\n";

// The installed weft doctor; `path`: where programs are looked for.
Ran Doctor(const JobFolder& folder, const std::string& arguments, const std::string& path) {
  return RunWeft(folder, arguments, {.program = folder.path() + "/weft", .path = path});
}

std::map<std::string, nlohmann::json> BySubject(const std::string& text) {
  std::map<std::string, nlohmann::json> findings;
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return findings;
  for (const auto& finding : json["findings"]) findings[finding["subject"]] = finding;
  return findings;
}

TEST(Doctor, FindsThisMachineSound) {
  const JobFolder folder;
  const Ran text = RunWeft(folder, "doctor");
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_THAT(text.out, HasSubstr("ok      programs      weft, weftd, weft-worker: one build"));
  EXPECT_THAT(text.out, HasSubstr("OpenBLAS"));
  EXPECT_THAT(text.out, HasSubstr("well: weft can train here on "));

  const Ran ran = RunWeft(folder, "doctor --json");
  EXPECT_EQ(ran.exit_code, 0);
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_TRUE(json["sound"]);
  EXPECT_FALSE(json["backends"]["cpu"]["devices"].empty());
  const auto findings = BySubject(ran.out);
  for (const char* subject : {"programs", "cpu backend", "cuda backend", "mpi", "slurm", "cpu",
                              "cores", "memory", "/dev/shm", "leftovers", "limits", "clock"}) {
    EXPECT_EQ(findings.count(subject), 1) << subject;
  }
}

TEST(Doctor, FindsGpusAndSaysWhyThereAreNone) {
  const JobFolder folder;
  Install(folder, "", std::string(kCpuProbe) + kGpuProbe);
  const Ran gpus = Doctor(folder, "doctor", folder.path() + ":/usr/bin:/bin");
  EXPECT_EQ(gpus.exit_code, 0) << gpus.out << gpus.err;
  EXPECT_THAT(gpus.out, HasSubstr("ok      cuda backend  1 x NVIDIA H200 (sm_90), 140 GiB; CUDA "
                                  "13.0, no cuDNN, NCCL 2.28.9"));
  EXPECT_THAT(gpus.out, HasSubstr("well: weft can train here on 1 GPU and on CPUs"));

  const JobFolder without;
  Install(without, "", std::string(kCpuProbe) + kNoDriver);
  const Ran ran = Doctor(without, "doctor --json", without.path() + ":/usr/bin:/bin");
  const auto findings = BySubject(ran.out);
  ASSERT_EQ(findings.count("cuda backend"), 1) << ran.out << ran.err;
  EXPECT_EQ(findings.at("cuda backend")["found"], "cuda: the NVIDIA driver is missing");
}

TEST(Doctor, ExitsWithOneAndNamesWhatIsBroken) {
  const JobFolder skewed;
  Install(skewed, "weft 0.0.1", kCpuProbe);
  const Ran skew = Doctor(skewed, "doctor", skewed.path() + ":/usr/bin:/bin");
  EXPECT_EQ(skew.exit_code, 1);
  EXPECT_THAT(skew.out, HasSubstr("broken  programs"));
  EXPECT_THAT(skew.out, HasSubstr("weftd is weft 0.0.1"));
  EXPECT_THAT(skew.err, HasSubstr("weft: this machine is not ready"));
  EXPECT_THAT(skew.out, testing::Not(HasSubstr("well:")));

  const JobFolder no_mpi;
  Install(no_mpi, "", kCpuProbe);
  std::filesystem::remove(no_mpi.path() + "/mpirun");
  const Ran ran = Doctor(no_mpi, "doctor --json", no_mpi.path());
  EXPECT_EQ(ran.exit_code, 1);
  const auto findings = BySubject(ran.out);
  ASSERT_EQ(findings.count("mpi"), 1) << ran.out << ran.err;
  EXPECT_EQ(findings.at("mpi")["health"], "broken");
  EXPECT_THAT(std::string(findings.at("mpi")["cure"]),
              HasSubstr("install it (Debian: openmpi-bin)"));
}

}  // namespace
}  // namespace weft
