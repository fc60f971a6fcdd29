// weft completion, in the shells themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    text.append(buffer, got);
  return absl::StrCat(text, pclose(pipe) == 0 ? "" : "(failed)");
}

class Completion : public testing::Test {
 protected:
  std::string Script(const std::string& shell) {
    const Ran ran = RunWeft(folder_, "completion " + shell);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const std::string path = absl::StrCat(folder_.path(), "/_weft");
    std::ofstream(path) << ran.out;
    return path;
  }
  // Returns what bash offers for the last of `words`.
  std::string Offered(const std::string& words, int last) {
    return OutputOf(absl::StrCat("cd ", folder_.path(), " && bash -c 'source ", Script("bash"),
                                 " && COMP_WORDS=(", words, ") COMP_CWORD=", last,
                                 " && _weft; echo \" ${COMPREPLY[*]} \"'"));
  }

  const JobFolder folder_;
};

TEST_F(Completion, OffersVerbsOptionsKeysAndFilesInBash) {
  EXPECT_EQ(Offered("weft pl", 1), " plan \n");
  EXPECT_THAT(Offered("weft plan --w", 2), AllOf(HasSubstr(" --why "), Not(HasSubstr("--json"))));
  EXPECT_THAT(Offered("weft run --det", 2), HasSubstr(" --detach "));
  EXPECT_EQ(Offered("weft plan job.yaml --set optimizer.l", 4), " optimizer.lr= \n");
  EXPECT_EQ(Offered("weft plan corp", 2), " corpus.txt \n");
}

TEST_F(Completion, IsAZshFunctionThatZshReads) {
  const std::string script = Script("zsh");
  EXPECT_EQ(OutputOf("zsh -n " + script), "");
  EXPECT_EQ(OutputOf(absl::StrCat("zsh -fc 'autoload -Uz compinit && compinit -D -u && source ",
                                  script, " && print ${_comps[weft]}'")),
            "_weft\n");
}

TEST_F(Completion, RefusesAShellThatItDoesNotKnow) {
  const Ran ran = RunWeft(folder_, "completion fish");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("fish"), HasSubstr("bash")));
}

}  // namespace
}  // namespace weft
