// Every JSON file that `weft` is pointed to or finds, in every state that malice or a lost disk may
// leave it in: no signal, and soon an answer that names the file. tests/text has what is refused
// and why; this is about who reads it, and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/launcher/commands/limited_run.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/saved_model.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::HasSubstr;

struct JsonFile {
  std::string path;       // in the folder
  std::string arguments;  // of the weft that reads it
  int64_t huge_mib = 2;   // files of tokens and weights are read up to 64 MiB
  std::string said = {};  // of the path; empty: all of it
};

struct Damage {
  std::string name;
  std::string text;
  bool is_json = false;  // so it may be read
};

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Damage> DamagesOf(const std::string& whole, int64_t huge_mib) {
  using namespace std::string_literals;
  const auto huge = static_cast<size_t>(huge_mib << 20);
  std::string numbers = "{\"a\": [1";
  while (numbers.size() < huge) numbers += ",1234567";
  return {{"nested", std::string(400'000, '[')},
          {"nested in an object", "{\"a\": " + std::string(400'000, '[') + "\n"},
          {"a huge string", "{\"a\": \"" + std::string(huge, 'x') + "\"}\n", true},
          {"a huge list", numbers + "]}\n", true},
          {"cut", whole.substr(0, whole.size() / 2) + "\n"},
          {"no UTF-8", "{\"\xFF\xFE\": 1}\n"},
          {"NULs", "{}\0\0\0\n"s},
          {"NULs alone", std::string(5000, '\0')}};
}

void ExpectTheNameOf(const JsonFile& file, const JobFolder& folder) {
  const std::string path = folder.path() + "/" + file.path;
  const std::string whole = ContentOf(path);
  for (const Damage& damage : DamagesOf(whole, file.huge_mib)) {
    folder.Write(file.path, damage.text);
    const Ran ran = RunLimited(folder, file.arguments);
    EXPECT_LT(ran.exit_code, 124) << file.path << " is " << damage.name << "\n" << ran.err;
    if (!damage.is_json || ran.exit_code != 0) {
      EXPECT_THAT(ran.out + ran.err, HasSubstr(file.said.empty() ? file.path : file.said))
          << damage.name;
    }
    EXPECT_LT(ran.err.size(), 40'000u) << file.path << " is " << damage.name;
  }
  folder.Write(file.path, whole);
}

// A folder in which each file of the table is whole.
class HostileJson : public testing::Test {
 protected:
  void SetUp() override {
    SaveModel(folder_, SmallModel(256), "llmc");
    const Ran exported = RunWeft(folder_, "export saved --hf hf");
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    const auto copy = std::filesystem::copy_options::recursive;
    std::filesystem::copy(At("hf"), At("parts"), copy);
    std::filesystem::rename(At("parts/model.safetensors"), At("parts/all.safetensors"));
    folder_.Write("parts/model.safetensors.index.json",
                  R"({"weight_map": {"model.norm.weight": "all.safetensors"}})");
    const std::string tokens = SourcePath("/tests/data/bpe/tokenizer.json");
    for (const char* name : {"tokens", "older", "run", "state/weft"}) {
      std::filesystem::create_directories(At(name));
    }
    std::filesystem::copy(tokens, At("tokens/tokenizer.json"));
    folder_.Write("tokens/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    folder_.Write("older/vocab.json", R"({"a": 0, "b": 1})");
    folder_.Write("older/merges.txt", "#version: 0.2\n");
    folder_.Write("older/added_tokens.json", R"({"<|x|>": 2})");
    folder_.Write("job.yaml", kGoodJob);
    folder_.Write("run/resolved.yaml", "");
    folder_.Write("run/events.jsonl", R"({"generation": 1, "event": "phase"})");
    folder_.Write("state/weft/ledger.jsonl", R"({"format_version": 1, "hardware": "x"})");
    folder_.Write("links.json", R"({"nodes": 2, "ranks": 2, "backend": "cpu"})");
  }
  std::string At(const std::string& path) const { return folder_.path() + "/" + path; }

  const JobFolder folder_;
};

TEST_F(HostileJson, OfAModelIsAnsweredByName) {
  const std::string hf = "generate hf --prompt-ids 1 --max-tokens 1";
  for (const JsonFile& file : std::vector<JsonFile>{
           {"hf/config.json", hf},
           {"hf/config.json", "plan job.yaml --set model.path=hf"},
           {"parts/model.safetensors.index.json", "generate parts --prompt-ids 1", 24},
           {"saved/step-7/manifest.json", "generate saved/step-7 --prompt-ids 1", 2,
            "manifest.json"}}) {
    ExpectTheNameOf(file, folder_);
  }
}

TEST_F(HostileJson, OfATokenizerIsAnsweredByName) {
  const std::string by = "generate saved --prompt a --max-tokens 1 --tokenizer ";
  for (const JsonFile& file : std::vector<JsonFile>{{"tokens/tokenizer.json", by + "tokens", 24},
                                                    {"tokens/tokenizer_config.json", by + "tokens"},
                                                    {"older/vocab.json", by + "older"},
                                                    {"older/added_tokens.json", by + "older"}}) {
    ExpectTheNameOf(file, folder_);
  }
}

TEST_F(HostileJson, OfARunIsAnsweredByName) {
  for (const JsonFile& file : std::vector<JsonFile>{
           {"run/events.jsonl", "why-stopped run"},
           {"state/weft/ledger.jsonl", "plan job.yaml"},
           {"links.json", "calibrate --profile cpu --links links.json --output out.yaml"}}) {
    ExpectTheNameOf(file, folder_);
  }
}

// The header of a file of weights has a length before it, and the data behind it.
TEST_F(HostileJson, OfAFileOfWeightsIsAnsweredByName) {
  const std::string path = At("hf/model.safetensors");
  for (const Damage& damage : DamagesOf(R"({"a": {"dtype": "F32"}})", 2)) {
    const uint64_t length = damage.text.size();
    folder_.Write("hf/model.safetensors",
                  std::string(reinterpret_cast<const char*>(&length), sizeof length) + damage.text);
    const Ran ran = RunLimited(folder_, "generate hf --prompt-ids 1 --max-tokens 1");
    EXPECT_LT(ran.exit_code, 124) << damage.name << "\n" << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("hf/model.safetensors: ")) << damage.name;
  }
}

// Nothing but a restart hangs on what Slurm was told: it counts as not there.
TEST_F(HostileJson, OfASlurmJobEndsNothing) {
  for (const Damage& damage : DamagesOf(R"({"format_version": 1, "job_id": "7"})", 2)) {
    folder_.Write("run/slurm.json", damage.text);
    const Ran ran = RunLimited(folder_, "status run");
    EXPECT_LT(ran.exit_code, 124) << damage.name << "\n" << ran.err;
  }
}

// 10 GiB that take no room on the disk.
TEST_F(HostileJson, OfAHugeFileOfLinesIsAnsweredSoon) {
  std::filesystem::resize_file(At("run/events.jsonl"), int64_t{10} << 30);
  const Ran ran = RunLimited(folder_, "why-stopped run");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("run/events.jsonl"));
}

}  // namespace
}  // namespace weft
