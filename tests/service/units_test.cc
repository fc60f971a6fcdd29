// The units of deploy/systemd: their command lines start weftd and a standing agent, and the signal
// by which systemd ends the agent lets jobs go on. Folders of the system are replaced by the
// test's.
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/places.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string UnitFile(absl::string_view name) {
  return absl::StrCat(SourcePath("/deploy/systemd/"), name);
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// The values of KEY=VALUE lines.
std::map<std::string, std::string> Settings(const std::string& file) {
  std::map<std::string, std::string> settings;
  for (const absl::string_view line : absl::StrSplit(ReadAll(UnitFile(file)), '\n')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (!absl::StartsWith(line, "#")) settings[pair.first] = pair.second;
  }
  return settings;
}

// As systemd.service(5) has it: $NAME as a word of its own becomes as many words as it has, ${NAME}
// is replaced where it stands.
std::vector<std::string> CommandOfUnit(const std::string& unit) {
  const auto environment = Settings("weft.env.example");
  std::vector<std::string> command;
  const std::string line = Settings(unit).at("ExecStart");
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (absl::ConsumePrefix(&word, "$") && !absl::StartsWith(word, "{")) {
      for (const auto& each :
           absl::StrSplit(environment.at(std::string(word)), ' ', absl::SkipEmpty())) {
        command.emplace_back(each);
      }
      continue;
    }
    std::string text(word);
    for (const auto& [name, value] : environment) {
      text = absl::StrReplaceAll(text, {{absl::StrCat("${", name, "}"), value}});
    }
    EXPECT_THAT(text, ::testing::Not(HasSubstr("$"))) << unit;
    command.push_back(text);
  }
  return command;
}

class Units : public ServiceBed {
 protected:
  std::vector<std::string> WeftdWords() const override { return Here("weftd.service"); }
  std::vector<std::string> HostWords(int) const override { return Here("weft-agent.service"); }

 private:
  std::vector<std::string> Here(const std::string& unit) const {
    std::vector<std::string> words = CommandOfUnit(unit);
    for (std::string& word : words) {
      word = absl::StrReplaceAll(word, {{"/usr/local/bin", BinaryPath("/bin")},
                                        {"/run/weft", folder()},
                                        {"/var/lib/weft", folder()}});
    }
    return words;
  }
};

TEST_F(Units, TrainAJobThroughARestartOfTheAgentsUnit) {
  const auto agent = Settings("weft-agent.service");
  ASSERT_EQ(agent.at("KillMode"), "process");
  ASSERT_EQ(agent.at("KillSignal"), "SIGHUP");
  StartHost(2);
  EXPECT_EQ(Host().slots(), 2);
  const std::string job = Submit(Job("one", 2, 300));
  WaitForStep(job, 20);
  RestartHost(SIGHUP, 2);
  const v1::Job done = WaitForPhase(job, "COMPLETED");
  EXPECT_EQ(done.generation(), 1) << "its ranks were started again";
}

// systemd itself looks at them, where it is installed.
TEST(UnitFiles, AreAsSystemdWantsThem) {
  if (std::system("command -v systemd-analyze >/dev/null") != 0) {
    GTEST_SKIP() << "there is no systemd-analyze; install systemd";
  }
  char folder[] = "/tmp/weft-units-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  std::string command = "timeout 60 systemd-analyze verify --man=no";
  for (const std::string unit : {"weftd.service", "weft-agent.service"}) {
    const std::string path = absl::StrCat(folder, "/", unit);
    std::ofstream(path) << absl::StrReplaceAll(
        ReadAll(UnitFile(unit)), {{"/usr/local/bin", BinaryPath("/bin")},
                                  {"/etc/weft/weft.env", UnitFile("weft.env.example")}});
    absl::StrAppend(&command, " ", path);
  }
  const std::string words = absl::StrCat(folder, "/words");
  EXPECT_EQ(std::system(absl::StrCat(command, " >", words, " 2>&1").c_str()), 0);
  std::ostringstream said;
  said << std::ifstream(words).rdbuf();
  EXPECT_EQ(said.str(), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft
