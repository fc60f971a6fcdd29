// deploy/install_packages.sh says why it cannot go on, on machines made of fake commands in front
// of PATH: one sentence that names the cause, exit code 1, and nothing installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Machine {
  const char* what;
  std::string os_release;
  std::map<std::string, std::string> commands;  // name -> shell text
  int exit_code;
  std::string says;
};

struct Result {
  int exit_code = -1;
  std::string output;
};

Result RunShell(const std::string& command) {
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (pipe && fgets(buffer, sizeof buffer, pipe)) result.output += buffer;
  const int status = pipe ? pclose(pipe) : -1;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

Result InstallOn(const Machine& machine) {
  std::string folder = std::filesystem::temp_directory_path() / "weft-deploy-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::create_directory(folder + "/clone");
  std::filesystem::copy(SourcePath("/deploy"), folder + "/clone/deploy",
                        std::filesystem::copy_options::recursive);
  std::filesystem::create_directory(folder + "/bin");
  std::ofstream(folder + "/os-release") << machine.os_release;
  for (const auto& [name, text] : machine.commands) {
    const std::string path = folder + "/bin/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  Result result =
      RunShell("PATH='" + folder + "/bin':$PATH WEFT_OS_RELEASE='" + folder +
               "/os-release' bash '" + folder + "/clone/deploy/install_packages.sh' run 2>&1");
  std::filesystem::remove_all(folder);
  return result;
}

TEST(Packages, AreListedOnceEach) {
  std::ifstream list(SourcePath("/deploy/packages.txt"));
  std::set<std::string> names;
  for (std::string line; std::getline(list, line);) {
    const std::string name = line.substr(0, line.find(' '));
    if (name.empty() || name[0] == '#') continue;
    EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
  }
  EXPECT_GT(names.size(), 20u);
}

TEST(InstallPackages, SaysInOneSentenceWhyItCannotGoOn) {
  const std::string debian = "ID=debian\nVERSION_ID=\"12\"\n";
  const std::string none = "echo not-installed";
  const std::string roomy = "printf 'Avail\\n999999\\n'";
  const std::string sudo = "[ \"$1\" = -n ] && shift; exec \"$@\"";
  const auto apt = [](const std::string& error) {
    return "case \"$*\" in *install*) echo '" + error + "'; exit 100;; esac";
  };
  const Machine machines[] = {
      {"another distribution", "ID=ubuntu\nVERSION_ID=\"24.04\"\n", {}, 1, "'ubuntu 24.04'"},
      {"another release", "ID=debian\nVERSION_ID=\"13\"\n", {}, 1, "'debian 13'"},
      {"a full disk", debian, {{"df", "printf 'Avail\\n12\\n'"}}, 1, "no space: "},
      {"everything there",
       debian,
       {{"df", roomy}, {"dpkg-query", "echo installed"}},
       0,
       "packages: all installed\n"},
      {"no network",
       debian,
       {{"df", roomy},
        {"dpkg-query", none},
        {"sudo", sudo},
        {"apt-get", apt("E: Failed to fetch http://deb.debian.org/x  Could not resolve host")}},
       1,
       "weft: no network: the Debian archive cannot be reached (E: Failed to fetch"},
      {"no space while unpacking",
       debian,
       {{"df", roomy},
        {"dpkg-query", none},
        {"sudo", sudo},
        {"apt-get", apt("E: write error: No space left on device")}},
       1,
       "weft: no space: apt could not unpack"},
      {"a package that is not there",
       debian,
       {{"df", roomy},
        {"dpkg-query", none},
        {"sudo", sudo},
        {"apt-get", apt("E: Unable to locate package g++")}},
       1,
       "weft: apt-get could not install the packages (E: Unable to locate package g++)"},
      {"a working archive",
       debian,
       {{"df", roomy}, {"dpkg-query", none}, {"sudo", sudo}, {"apt-get", "true"}},
       0,
       "packages: done\n"},
  };
  for (const Machine& machine : machines) {
    const Result result = InstallOn(machine);
    EXPECT_EQ(result.exit_code, machine.exit_code) << machine.what << ": " << result.output;
    EXPECT_THAT(result.output, HasSubstr(machine.says)) << machine.what;
  }
}

TEST(TestScript, RefusesWhatItDoesNotKnowBeforeItDoesAnything) {
  const struct {
    const char* arguments;
    const char* says;
  } cases[] = {{"--full",
                "unknown option '--full'; use --all, --all with one of random kernels cuda asan "
                "tsan, or none"},
               {"--all msan", "unknown part 'msan'; use --all"},
               {"--all asan tsan", "unknown option 'tsan'; use --all"}};
  for (const auto& each : cases) {
    const Result result = RunShell("bash '" + SourcePath("/deploy/test.sh' ") +
                                   std::string(each.arguments) + " 2>&1");
    EXPECT_EQ(result.exit_code, 2) << each.arguments;
    EXPECT_THAT(result.output, HasSubstr(each.says)) << each.arguments;
  }
}

// Returns what report_tests.py says of three entries, with `environment` in front of its call.
Result ReportOn(const std::string& skipped_label, const std::string& environment) {
  const std::string base = testing::TempDir() + "weft-report-" + skipped_label;
  const auto result = [](const char* name, const char* seconds, const char* status) {
    return "<testcase name='" + std::string(name) + "' time='" + seconds + "' status='" + status +
           "'/>";
  };
  const auto entry = [](const std::string& name, const std::string& labels) {
    return R"({"name": ")" + name + R"(", "properties": [{"name": "LABELS", "value": [)" + labels +
           "]}]}";
  };
  std::ofstream(base + ".xml") << "<testsuite>" << result("Quick.One", "0.5", "run")
                               << result("Slow.One", "12.25", "run")
                               << result("Skipped.One", "0", "notrun") << "</testsuite>";
  std::ofstream(base + ".json") << R"({"tests": [)" << entry("Quick.One", R"("unit")") << ","
                                << entry("Slow.One", R"("process", "hosts")") << ","
                                << entry("Skipped.One", '"' + skipped_label + '"') << "]}";
  Result said = RunShell(environment + " python3 '" + SourcePath("/deploy/report_tests.py") + "' " +
                         base + ".xml " + base + ".json 2>&1");
  std::filesystem::remove(base + ".xml");
  std::filesystem::remove(base + ".json");
  return said;
}

TEST(TestReport, SaysWhatTookLongestAndTheSecondsOfEachLabel) {
  const Result result = ReportOn("gpu", "env -u WEFT_GATE");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("    12.2 s  Slow.One\n     0.5 s  Quick.One\n"));
  EXPECT_THAT(result.output, HasSubstr("    12.2 s  hosts: 1 entries\n"));
}

TEST(TestReport, FailsInTheGateWhereATestWasSkippedThatNeedsNoGpu) {
  for (const char* const may : {"unit", "gpu"}) {
    EXPECT_EQ(ReportOn(may, "WEFT_GATE=1").exit_code, 0) << may;
  }
  for (const char* const must : {"process", "hosts"}) {
    const Result result = ReportOn(must, "WEFT_GATE=1");
    EXPECT_EQ(result.exit_code, 1) << must;
    EXPECT_THAT(result.output, HasSubstr("weft: Skipped.One was skipped")) << must;
    EXPECT_EQ(ReportOn(must, "env -u WEFT_GATE").exit_code, 0) << must;
  }
}

}  // namespace
}  // namespace weft
