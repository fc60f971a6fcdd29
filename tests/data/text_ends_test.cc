#include "data/text_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TextEnds : public testing::Test {
 protected:
  TextEnds() {
    std::string name = testing::TempDir() + "/ends-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~TextEnds() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::set<int32_t> Ends() {
    const auto ends = ReadStatedEnds(folder_);
    EXPECT_TRUE(ends.ok()) << ends.status();
    return ends.value_or(std::set<int32_t>{-1});
  }
  std::string Refusal() { return std::string(ReadStatedEnds(folder_).status().message()); }

  std::string folder_;
};

TEST_F(TextEnds, AreThoseOfBothFiles) {
  EXPECT_THAT(Ends(), ElementsAre());
  Write("config.json", R"({"eos_token_id": 128001})");
  EXPECT_THAT(Ends(), ElementsAre(128001));
  Write("generation_config.json", R"({"eos_token_id": [128008, 128009, 128001]})");
  EXPECT_THAT(Ends(), ElementsAre(128001, 128008, 128009));
  for (const char* none : {R"({"eos_token_id": null})", R"({"eos_token_id": []})", "{}"}) {
    Write("generation_config.json", none);
    EXPECT_THAT(Ends(), ElementsAre(128001)) << none;
  }
}

TEST_F(TextEnds, RefuseWhatIsNoId) {
  for (const char* wrong : {R"("</s>")", "-1", "1.5", "4294967296", R"([1, "2"])", R"({"a": 1})"}) {
    Write("config.json", std::string(R"({"eos_token_id": )") + wrong + "}");
    EXPECT_THAT(Refusal(), HasSubstr("config.json: eos_token_id: found ")) << wrong;
  }
  Write("config.json", "[");
  EXPECT_THAT(Refusal(), HasSubstr("config.json: found no JSON object"));
}

}  // namespace
}  // namespace weft
