// Files and texts that are made to cost memory, time or a crash: each is refused by name, or costs
// what its size allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

absl::StatusOr<Tokenizer> Opened(const std::string& text,
                                 const std::string& file = "tokenizer.json") {
  std::string folder = testing::TempDir() + "/hostile-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no folder");
  const std::string path = absl::StrCat(folder, "/", file);
  std::ofstream(path, std::ios::binary) << text;
  absl::StatusOr<Tokenizer> opened = Tokenizer::Open(path);
  std::filesystem::remove_all(folder);
  return opened;
}

std::string Refusal(const std::string& text, const std::string& file = "tokenizer.json") {
  const auto opened = Opened(text, file);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 200);
  return std::string(opened.status().message());
}

TEST(HostileJson, HasEachKeyOnce) {
  EXPECT_THAT(Refusal(R"({"model":{"type":"Unigram","vocab":{"x":4000000},"vocab":[["a",-1.0]]}})"),
              HasSubstr("tokenizer.json: /model/vocab: found the key twice, expected it once"));
  EXPECT_THAT(Refusal(R"({"model":{"vocab":{"x":0},"merges":[],"merges":[]}})"),
              HasSubstr("/model/merges: found the key twice"));
  EXPECT_THAT(Refusal(R"({"model":{"vocab":{"x":0}},"model":{"vocab":[["a",-1.0]]}})"),
              HasSubstr("/model: found the key twice"));
}

}  // namespace
}  // namespace weft
