// weft eval and weft generate through the real executables, on checkpoints that no run has made:
// what they print, and every way to call them wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/verify.h"
#include "launcher/inference/token_text.h"
#include "plan/block/tensors.h"
#include "plan/spec/model.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/launcher/saved_model.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::string Tokenizer() {
  return SourcePath("/tests/data/bpe");
}

TEST(Eval, SaysLossPerplexityAndBits) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const Ran ran = RunWeft(folder, "eval saved/step-7 --data corpus.txt --json --threads 1");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["checkpoint"], folder.path() + "/saved/step-7");
  EXPECT_EQ(json["tokens"], (4000 - 1) / 16 * 16);  // every window once
  const double loss = json["loss"];
  EXPECT_NEAR(loss, std::log(256), 3);  // arbitrary weights know nothing
  EXPECT_DOUBLE_EQ(json["perplexity"].get<double>(), std::exp(loss));
  EXPECT_DOUBLE_EQ(json["bits_per_byte"].get<double>(), loss / std::log(2));
  EXPECT_EQ(std::strtod(json["loss_hex"].get<std::string>().c_str(), nullptr), loss);

  const Ran text = RunWeft(folder, "eval saved --data corpus.txt --steps 3 --batch 5");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              testing::AllOf(HasSubstr("step-7"), HasSubstr("nats per byte"),
                             HasSubstr("perplexity"), HasSubstr("bits/byte"),
                             HasSubstr("tokens      192, in sequences of 16")));  // 3 * 4 * 16
}

TEST(Eval, RefusesByName) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(90), "bytes");
  folder.Write("short.txt", "too short");
  struct Case {
    const char* arguments;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {"eval nowhere", 2, "no such file or folder: nowhere"},
      {"eval .", 2, "no checkpoint in ."},
      {"eval short.txt", 2, ""},
      {"eval", 2, "checkpoint is required"},
      {"eval saved --steep 3", 2, "--steep"},
      {"eval saved --steps -1", 2, "--steps: -1 is out of range; use 0 or more"},
      {"eval saved", 2,
       "nothing was held out for these weights; name files to evaluate with --data"},
      {"eval saved --data gone.txt", 2, "gone.txt"},
      {"eval saved --data short.txt", 2, "short.txt: holds 9 tokens"},
      // 'a' is id 97.
      {"eval saved --data corpus.txt", 2, "found id 97, expected below vocab_size 90"},
  };
  for (const Case& c : cases) {
    const Ran ran = RunWeft(folder, c.arguments);
    EXPECT_EQ(ran.exit_code, c.exit_code) << c.arguments << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(c.says)) << c.arguments;
    EXPECT_EQ(ran.out, "") << c.arguments;
  }
}

// Its own files are kept as it says.
TEST(Eval, TakesAFormatWithFilesOnly) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes", {{"data.valid[0]", "corpus.txt 4000:0"}});
  const Ran ran = RunWeft(folder, "eval saved --format llmc");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--format says how the files of --data are kept"));
}

TEST(Eval, NamesADamagedShard) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const std::string shard = folder.path() + "/saved/step-7/" + ShardFileName(0);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(3000);
  file.put('!');
  file.close();
  for (const char* target : {"saved/step-7", "saved"}) {
    const Ran ran = RunWeft(folder, absl::StrCat("eval ", target, " --data corpus.txt"));
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_THAT(ran.err, HasSubstr("rank-00000.safetensors: xxh3 ")) << target;
  }
}

TEST(Eval, SaysWhatAnOldCheckpointLacks) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const std::string path = folder.path() + "/saved/step-7/manifest.json";
  auto manifest = VerifyCheckpoint(folder.path() + "/saved/step-7");
  ASSERT_TRUE(manifest.ok());
  manifest->model.reset();
  std::ofstream(path) << ManifestText(*manifest);
  const Ran ran = RunWeft(folder, "eval saved/step-7 --data corpus.txt");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("format 2, which does not state the model"));
}

TEST(Generate, PrintsAsManyBytesAsAskedAndTheSameForTheSameSeed) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const std::string call = "generate saved --prompt hello --max-tokens 20 --threads 1";
  const Ran first = RunWeft(folder, call + " --seed 3");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out.size(), 21u);  // and a newline
  EXPECT_EQ(RunWeft(folder, call + " --seed 3").out, first.out);
  EXPECT_NE(RunWeft(folder, call + " --seed 4").out, first.out);
  EXPECT_EQ(RunWeft(folder, call + " --greedy").out, RunWeft(folder, call + " --top-k 1").out);
  EXPECT_EQ(RunWeft(folder, call + " --seed 3 --echo").out, "hello" + first.out);
  folder.Write("prompt.txt", "hello");
  const std::string from_file =
      "generate saved --max-tokens 20 --threads 1 --seed 3 --prompt-file ";
  EXPECT_EQ(RunWeft(folder, from_file + "prompt.txt").out, first.out);
  EXPECT_EQ(RunWeft(folder, from_file + "-", {.input = folder.path() + "/prompt.txt"}).out,
            first.out);
  // The same as ids, whose bytes they are.
  const Ran ids = RunWeft(
      folder,
      "generate saved --max-tokens 20 --threads 1 --seed 3 --prompt-ids 104,101,108,108,111");
  const auto numbers = ParseIds(ids.out);
  ASSERT_TRUE(numbers.ok()) << ids.out;
  std::string bytes;
  for (const int32_t id : *numbers) bytes.push_back(static_cast<char>(id));
  EXPECT_EQ(bytes + "\n", first.out);
}

TEST(Generate, StopsAtTheModelsLastPosition) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const Ran ran = RunWeft(folder, "generate saved --prompt hello --max-tokens 1000 --greedy");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out.size(), 40u - 5u + 1u + 1u);
  EXPECT_THAT(ran.err, HasSubstr("stopped after position 40, the model's last"));
}

TEST(Generate, TakesTextForTokenIdsWithTheirTokenizer) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(430), "llmc");
  const Ran ids = RunWeft(
      folder, "generate saved --prompt-ids 0,310,69,312 --max-tokens 6 --greedy --threads 1");
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  const std::string call =
      absl::StrCat("generate saved --prompt '<|endoftext|>the work' --tokenizer ", Tokenizer(),
                   " --max-tokens 6 --greedy --threads 1");
  const Ran text = RunWeft(folder, call + " --specials parse");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const auto tokenizer = TokenText::Open(TokenFormat::kLlmc, Tokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto parsed = tokenizer->Encode("<|endoftext|>the work", {.specials = Specials::kParse});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(*parsed, (std::vector<int32_t>{0, 310, 69, 312}));
  const auto numbers = ParseIds(ids.out);
  ASSERT_TRUE(numbers.ok()) << ids.out;
  TextStream stream(&*tokenizer);
  std::string expected;
  for (const int32_t id : *numbers) expected += stream.Take(id);
  EXPECT_EQ(text.out, expected + stream.Rest() + "\n");
  // Unless it is told to, it takes no word of a prompt for a special token.
  EXPECT_THAT(RunWeft(folder, call + " --specials refuse").err,
              HasSubstr("the prompt: found the special token \"<|endoftext|>\" at byte 0"));
  EXPECT_NE(RunWeft(folder, call + " --echo").out,
            RunWeft(folder, call + " --specials parse --echo").out);
}

TEST(Generate, RefusesByName) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const std::string long_prompt(41, 'x');
  struct Case {
    std::string arguments;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {"generate nowhere --prompt a", 2, "no such file or folder: nowhere"},
      {"generate saved", 2, "no prompt; give --prompt TEXT"},
      {"generate saved --prompt ''", 2, "the prompt is empty"},
      {"generate saved --prompt-file -", 2, "the prompt is empty"},
      {"generate saved --prompt-file gone.txt", 2,
       "--prompt-file: gone.txt: cannot be read: No such file"},
      {"generate saved --prompt-file .", 2,
       "--prompt-file: .: is a folder; name a file; - is stdin"},
      {"generate saved --prompt " + long_prompt, 2,
       "the prompt has 41 tokens, the model has 40 positions"},
      {"generate saved --prompt a --prompt-ids 1", 2, "prompt"},
      {"generate saved --prompt-ids 1,256", 2,
       "the prompt holds id 256, the model's ids are 0 to 255"},
      {"generate saved --prompt-ids 1,x", 2, "--prompt-ids: found \"x\""},
      {"generate saved --prompt a --max-tokens 0", 2,
       "--max-tokens: 0 is out of range; use 1 to 1073741824"},
      {"generate saved --prompt a --temperature -1", 2,
       "--temperature: -1 is out of range; use 0 to 1e+06"},
      {"generate saved --prompt a --top-p 0", 2,
       "--top-p: 0 is out of range; use more than 0, at most 1"},
      {"generate saved --prompt a --top-k -1", 2, "--top-k: -1 is out of range; use 0 or more"},
      {"generate saved --prompt a --seed -1", 2, "--seed: -1 is out of range; use 0 or more"},
      {"generate saved --prompt a --seed x", 2, "--seed: found x; expected a whole number"},
      {"generate saved --prompt a --greedy --temperature 0.7", 2,
       "--greedy always takes the likeliest token, --temperature 0.7 draws one; keep one"},
      {"generate saved --prompt a --greedy --top-p 0.5", 2, "--top-p 0.5 draws one"},
      {"generate saved --prompt a --hot", 2, "--hot"},
      {"generate saved --prompt-ids 1 '' --top-k 4", 2, "not expected"},
      {absl::StrCat("generate saved --prompt a --tokenizer ", Tokenizer()), 2, "leave it out"},
      {"generate saved --prompt-ids 1 --specials no", 2, "--specials: found no; use refuse"},
      {"generate saved --prompt a --specials no", 2, "--specials: found no; use refuse, text or"},
      {"generate saved --prompt a --invalid-utf8 no", 2, "--invalid-utf8: found no; use refuse or"},
  };
  for (const Case& c : cases) {
    const Ran ran = RunWeft(folder, c.arguments);
    EXPECT_EQ(ran.exit_code, c.exit_code) << c.arguments << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(c.says)) << c.arguments;
    EXPECT_EQ(ran.out, "") << c.arguments;
  }
  const JobFolder of_ids;
  SaveModel(of_ids, SmallModel(256), "nanogpt");
  EXPECT_THAT(RunWeft(of_ids, "generate saved --prompt a").err,
              HasSubstr("trained on nanogpt token ids; name the tokenizer"));
}

// A checkpoint of `model` and the directory `hf` of the same weights.
void SaveAndExport(const JobFolder& folder, const ModelShape& model, const std::string& format) {
  SaveModel(folder, model, format);
  const Ran ran = RunWeft(folder, "export saved --hf hf");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
}

TEST(HuggingFaceDirectory, IsEvaluatedAsTheCheckpointThatItCameFrom) {
  const JobFolder folder;
  SaveAndExport(folder, SmallModel(256), "bytes");
  const std::string rest = " --data corpus.txt --json --threads 1";
  const Ran own = RunWeft(folder, "eval saved --seq-len 24 --batch 3" + rest);
  const Ran ran = RunWeft(folder, "eval hf --format bytes --seq-len 24 --batch 3" + rest);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const auto of_checkpoint = nlohmann::json::parse(own.out);
  const auto of_directory = nlohmann::json::parse(ran.out);
  EXPECT_EQ(of_directory["checkpoint"], folder.path() + "/hf");
  EXPECT_FALSE(of_directory.contains("step"));
  EXPECT_EQ(of_directory["seq_len"], 24);
  EXPECT_EQ(of_directory["tokens"], (4000 - 1) / 24 * 24);
  EXPECT_EQ(of_directory["tokens"], of_checkpoint["tokens"]);
  EXPECT_NEAR(of_directory["loss"], of_checkpoint["loss"], 1e-12);
  // Without a word about length: all of the model's positions.
  const Ran text = RunWeft(folder, "eval hf --format bytes --data corpus.txt --steps 2");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("tokens      80, in sequences of 40"));
}

TEST(HuggingFaceDirectory, GoesOnWithAPrompt) {
  const JobFolder folder;
  SaveAndExport(folder, SmallModel(430), "llmc");
  const std::string rest = " --max-tokens 6 --greedy --threads 1";
  const Ran ids = RunWeft(folder, "generate saved --prompt-ids 310,69,312" + rest);
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  const Ran same = RunWeft(folder, "generate hf --prompt-ids 310,69,312" + rest);
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.out, ids.out);
  const std::string text = " --prompt 'the work'" + rest;
  const Ran without = RunWeft(folder, "generate hf" + text);
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("this Hugging Face directory holds no tokenizer; name the "
                                     "tokenizer that made them with --tokenizer"));
  const Ran named = RunWeft(folder, absl::StrCat("generate hf --tokenizer ", Tokenizer(), text));
  ASSERT_EQ(named.exit_code, 0) << named.err;
  // One that lies beside the weights needs no name.
  std::filesystem::copy_file(absl::StrCat(Tokenizer(), "/tokenizer.json"),
                             folder.path() + "/hf/tokenizer.json");
  EXPECT_EQ(RunWeft(folder, "generate hf" + text).out, named.out);
  folder.Write("hf/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_THAT(RunWeft(folder, "generate hf" + text).err,
              HasSubstr("; or give the prompt as --prompt-ids"));
  EXPECT_EQ(RunWeft(folder, "generate hf --prompt-ids 310,69,312" + rest).out, ids.out);
}

// A run that starts from somebody's model gives back a model of that kind.
TEST(Export, KeepsWhatTheModelWasWhenTheRunBegan) {
  const JobFolder folder;
  ModelShape model = SmallModel(430);
  model.architecture = Architecture::kMistral;
  model.window = 32;
  const nlohmann::json source = {{"architectures", {"MistralForCausalLM"}},
                                 {"model_type", "mistral"},
                                 {"vocab_size", 430},
                                 {"hidden_size", 16},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 1},
                                 {"head_dim", 8},
                                 {"intermediate_size", 24},
                                 {"max_position_embeddings", 40},
                                 {"rms_norm_eps", 1e-5},
                                 {"rope_theta", 10000.0},
                                 {"sliding_window", 32},
                                 {"tie_word_embeddings", true},
                                 {"bos_token_id", 1},
                                 {"eos_token_id", {2, 7}},
                                 {"torch_dtype", "bfloat16"},
                                 {"somebodys_own", "stays"}};
  std::filesystem::create_directory(folder.path() + "/mistral");
  folder.Write("mistral/config.json", source.dump());
  folder.Write("mistral/generation_config.json", R"({"eos_token_id": [2, 7]})");
  folder.Write("mistral/tokenizer.json", "{}");
  SaveModel(folder, model, "llmc", {{"job.model.init_from", "\"" + folder.path() + "/mistral\""}});
  const auto exported = [&](const std::string& name, const std::string& more) {
    const Ran ran = RunWeft(folder, "export saved --hf " + name + more);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::ifstream stream(folder.path() + "/" + name + "/config.json");
    return nlohmann::json::parse(stream, nullptr, false);
  };
  EXPECT_EQ(exported("back", ""), source);
  for (const char* name : {"generation_config.json", "tokenizer.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/back/" + name)) << name;
  }
  // Half of fp32, within what bf16 rounds.
  EXPECT_LT(std::filesystem::file_size(folder.path() + "/back/model.safetensors"),
            4 * ParameterCount(model));
  const std::string call = " --prompt-ids 310,69,312 --greedy --threads 1 --max-tokens 1";
  EXPECT_EQ(RunWeft(folder, "generate back" + call).exit_code, 0);
  const auto single = exported("single", " --dtype float32");
  EXPECT_EQ(single["torch_dtype"], "float32");
  EXPECT_EQ(single["model_type"], "mistral");
  EXPECT_EQ(RunWeft(folder, "generate single" + call).out,
            RunWeft(folder, "generate saved" + call).out);
  // weft states the numbers of a model that was changed since, and the source the rest.
  nlohmann::json other = source;
  other["rope_theta"] = 5000.0;
  std::filesystem::create_directory(folder.path() + "/other");
  folder.Write("other/config.json", other.dump());
  const auto changed = exported("changed", " --like other");
  EXPECT_EQ(changed["rope_theta"], 10000.0);
  EXPECT_EQ(changed["model_type"], "mistral");
  EXPECT_EQ(changed["eos_token_id"], source["eos_token_id"]);
  EXPECT_EQ(changed["torch_dtype"], "bfloat16");
}

// Whatever file of the directory states an end of text, and however many.
TEST(HuggingFaceDirectory, EndsWhereItsFilesSay) {
  const JobFolder folder;
  SaveAndExport(folder, SmallModel(430), "llmc");
  const std::string call = "generate hf --prompt-ids 310,69,312 --greedy --threads 1 --max-tokens ";
  const Ran whole = RunWeft(folder, call + "12");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto ids = ParseIds(whole.out);
  ASSERT_TRUE(ids.ok()) << whole.out;
  // The first id that has not come before it.
  size_t end = 1;
  while (end < ids->size() &&
         std::count(ids->begin(), ids->begin() + static_cast<int>(end), (*ids)[end]) > 0) {
    ++end;
  }
  ASSERT_LT(end, ids->size()) << whole.out;
  const auto until_end = [&] {
    const Ran ran = RunWeft(folder, call + "12");
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    const auto told = ParseIds(ran.out);
    return told.ok() &&
           *told == std::vector<int32_t>(ids->begin(), ids->begin() + static_cast<int>(end));
  };
  EXPECT_FALSE(until_end());
  folder.Write("hf/generation_config.json",
               absl::StrCat(R"({"eos_token_id": [429, )", (*ids)[end], "]}"));
  EXPECT_TRUE(until_end()) << "a list in generation_config.json";
  std::filesystem::remove(folder.path() + "/hf/generation_config.json");
  EXPECT_FALSE(until_end());
  std::ifstream stream(folder.path() + "/hf/config.json");
  auto config = nlohmann::json::parse(stream);
  config["eos_token_id"] = (*ids)[end];
  folder.Write("hf/config.json", config.dump());
  EXPECT_TRUE(until_end()) << "a number in config.json";
}

// Dropouts in the config of a model that was trained with them matter to training alone.
TEST(HuggingFaceDirectory, MayHaveBeenTrainedWithDropouts) {
  const JobFolder folder;
  ModelShape model = SmallModel(256);
  SetArchitecture(Architecture::kGpt2, model);
  model.num_kv_heads = model.num_heads;
  model.tied_embeddings = true;
  SaveAndExport(folder, model, "bytes");
  const std::string call = "generate hf --format bytes --prompt hello --max-tokens 9 --greedy";
  const Ran plain = RunWeft(folder, call);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const std::string path = folder.path() + "/hf/config.json";
  std::ifstream stream(path);
  auto config = nlohmann::json::parse(stream);
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[key] = 0.1;
  std::ofstream(path) << config;
  const Ran ran = RunWeft(folder, call);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, plain.out);
}

TEST(HuggingFaceDirectory, IsRefusedByName) {
  const JobFolder folder;
  SaveAndExport(folder, SmallModel(256), "bytes");
  const auto says = [&folder](const std::string& arguments, const std::string& text) {
    const Ran ran = RunWeft(folder, arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << ran.out << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(text)) << arguments;
  };
  says("eval hf --data corpus.txt", "name it with --format: bytes, llmc, nanogpt or megatron");
  says("eval hf --format bytes", "nothing was held out for these weights; name files");
  says("eval hf --format words --data corpus.txt", "--format");
  says("eval hf --format bytes --data corpus.txt --seq-len 41",
       "--seq-len: found 41, the model has 40 positions; use 1 to 40");
  const std::string config = folder.path() + "/hf/config.json";
  const std::string prompt = " --prompt-ids 1";
  std::ifstream stream(config);
  const auto right = nlohmann::json::parse(stream);
  auto wrong = right;
  wrong["hidden_act"] = "relu";
  std::ofstream(config) << wrong.dump(1);
  says("generate hf" + prompt,
       "model.hidden_act: the text \"relu\" is not supported yet, and these weights were trained "
       "with "
       "it; use weights of a model with silu");
  wrong = right;
  wrong["model_type"] = "mistral";  // a llama reads no window
  wrong["sliding_window"] = -1;
  std::ofstream(config) << wrong.dump(1);
  says("generate hf" + prompt, "model.sliding_window: -1 is out of range; use null, or 1 to ");
  wrong = right;
  wrong["num_hidden_layers"] = 3;
  std::ofstream(config) << wrong.dump(1);
  says("generate hf" + prompt, "model.layers.2.");
  std::ofstream(config) << "{";
  says("generate hf" + prompt, "config.json: model.path: line 1, byte 2: the text ends amid");
  std::ofstream(config) << right;
  std::filesystem::remove(folder.path() + "/hf/model.safetensors");
  const Ran gone = RunWeft(folder, "generate hf" + prompt);
  EXPECT_NE(gone.exit_code, 0);
  EXPECT_THAT(gone.err, HasSubstr("model.safetensors"));
}

TEST(CharacterStream, ShowsWholeCharactersAndLosesNothing) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\xFF\x82z\xE2\x82";
  CharacterStream stream;
  std::vector<std::string> shown;
  for (const char byte : text) {
    const std::string piece = stream.Take(absl::string_view(&byte, 1));
    if (!piece.empty()) shown.push_back(piece);
  }
  EXPECT_THAT(shown, testing::ElementsAre("a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82",
                                          "\xFF", "\x82", "z"));
  EXPECT_EQ(stream.Rest(), "\xE2\x82");
  EXPECT_EQ(stream.Rest(), "");
}

}  // namespace
}  // namespace weft
