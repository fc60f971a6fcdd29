// A job file that names texts: what its job is then, and what is refused.
#include "launcher/job_file/text_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/prepare/token_cache.h"
#include "data/token_file.h"
#include "launcher/job_file/job_yaml.h"
#include "tests/data/prepare/small_tokenizer.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class TextDataTest : public testing::Test {
 protected:
  TextDataTest() {
    WriteSmallTokenizer(folder_.path() + "/tokenizer.json");
    folder_.Write("notes.jsonl", RowsForTest(100, 1));
    job_ = JobWith("  format: bytes\n", "  tokenizer: tokenizer.json\n  cache: cache\n");
    Replace("corpus.txt", "notes.jsonl");
    Replace("vocab_size: 256", "vocab_size: 259");
  }
  void Replace(const std::string& from, const std::string& to) {
    const size_t at = job_.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    job_.replace(at, from.size(), to);
  }
  absl::StatusOr<JobFile> Read(JobFileOptions options = {}) {
    return ReadJobText(job_, folder_.job(), options);
  }
  // As weft run reads it.
  absl::StatusOr<JobFile> Start() {
    return Read({.to_run = true, .on_tokens = [this](const PrepareProgress& now) {
                   if (now.is_over) ++worked_;
                 }});
  }
  std::string Error() { return std::string(Start().status().message()); }

  std::vector<int32_t> Tokens(const JobFile& file) {
    const auto opened = TokenFile::Open(file.job.data.train[0].path, EncodingOf(file.job));
    EXPECT_TRUE(opened.ok()) << opened.status();
    std::vector<int32_t> tokens(static_cast<size_t>((*opened)->tokens()));
    (*opened)->Read(0, absl::MakeSpan(tokens));
    return tokens;
  }
  int32_t LastToken(const JobFile& file) { return Tokens(file).back(); }

  JobFolder folder_;
  std::string job_;
  int worked_ = 0;  // how often texts were tokenised
};

TEST_F(TextDataTest, BecomesFilesOfTokens) {
  const auto file = Start();
  ASSERT_TRUE(file.ok()) << file.status();
  const DataSpec& data = file->job.data;
  EXPECT_EQ(data.format, TokenFormat::kNanogpt);
  EXPECT_EQ(data.dtype, TokenDtype::kUint16);
  ASSERT_EQ(data.train.size(), 1u);
  EXPECT_THAT(data.train[0].path, HasSubstr(folder_.path() + "/cache/notes.jsonl-"));
  const auto tokens = TokenFile::Open(data.train[0].path, EncodingOf(file->job));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  std::vector<int32_t> last(1);
  (*tokens)->Read((*tokens)->tokens() - 1, absl::MakeSpan(last));
  EXPECT_EQ(last[0], kEndOfTextForTest);
  EXPECT_EQ(worked_, 1);
  // The second time nothing is made, and a copy of the text has the same tokens.
  const auto again = Start();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job.data, data);
  EXPECT_EQ(worked_, 1);
  folder_.Write("copy/notes.jsonl", "");
  std::filesystem::create_directory(folder_.path() + "/copy");
  folder_.Write("copy/notes.jsonl", RowsForTest(100, 1));
  Replace("notes.jsonl", "copy/notes.jsonl");
  EXPECT_EQ(Start()->job.data, data);
  EXPECT_EQ(worked_, 1);
}

TEST_F(TextDataTest, IsAnotherFileWhenTextTokenizerOrRulesChange) {
  const auto first = Start();
  ASSERT_TRUE(first.ok()) << first.status();
  folder_.Write("notes.jsonl", RowsForTest(100, 2));
  const auto other_text = Start();
  ASSERT_TRUE(other_text.ok()) << other_text.status();
  EXPECT_NE(other_text->job.data, first->job.data);
  folder_.Write("notes.jsonl", RowsForTest(100, 1));
  EXPECT_EQ(Start()->job.data, first->job.data);
  Replace("  cache: cache\n", "  cache: cache\n  eos_token_id: 10\n  reset_attention_mask: true\n");
  EXPECT_NE(Start()->job.data.train, first->job.data.train);
}

TEST_F(TextDataTest, IsNoFileOfTokensWhenItChangesMeanwhile) {
  const std::string text = folder_.path() + "/notes.jsonl";
  const auto file = Read({.to_run = true, .on_tokens = [&](const PrepareProgress&) {
                            std::ofstream(text, std::ios::app) << "{\"text\": \"more\"}\n";
                          }});
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("notes.jsonl: was written to while it was tokenised"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/cache")) {
    EXPECT_NE(entry.path().extension(), ".bin");
  }
}

TEST_F(TextDataTest, SharesTheWorkOfTwoThatStartAtOnce) {
  std::vector<absl::StatusOr<JobFile>> files(2, absl::UnknownError(""));
  {
    std::vector<std::jthread> starts;
    for (auto& file : files) {
      starts.emplace_back(
          [&] { file = Read({.to_run = true, .on_tokens = [](const PrepareProgress&) {}}); });
    }
  }
  ASSERT_TRUE(files[0].ok() && files[1].ok()) << files[0].status() << files[1].status();
  EXPECT_EQ(files[0]->job.data, files[1]->job.data);
}

TEST_F(TextDataTest, IsPlannedWithoutItsTokens) {
  const auto planned = Read();
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_THAT(planned->notes, Contains(HasSubstr("tokenised when the job starts")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/cache"));
  ASSERT_TRUE(Start().ok());
  EXPECT_THAT(Read()->job.data.train[0].path, HasSubstr("/cache/notes.jsonl-"));
  std::filesystem::remove(folder_.path() + "/notes.jsonl");
  const auto without = Read({.check_files = false});
  ASSERT_TRUE(without.ok()) << without.status();
}

TEST_F(TextDataTest, TakesTheTokenizerThatLiesBesideTheModel) {
  Replace("  tokenizer: tokenizer.json\n", "");
  EXPECT_THAT(Error(), HasSubstr("(JSON lines); name their tokenizer with data.tokenizer"));
  std::filesystem::create_directory(folder_.path() + "/model");
  WriteSmallTokenizer(folder_.path() + "/model/tokenizer.json");
  folder_.Write(
      "model/config.json",
      "{\"model_type\": \"gpt2\", \"vocab_size\": 259, \"n_positions\": 64, \"n_embd\": 32, "
      "\"n_layer\": 4, \"n_head\": 4}");
  const size_t model = job_.find("model:\n"), data = job_.find("data:\n");
  job_.replace(model, data - model, "model: {path: model}\n");
  const auto file = Start();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.data.format, TokenFormat::kNanogpt);
}

TEST_F(TextDataTest, ReadsTheOtherNamesOfItsKeys) {
  Replace("  tokenizer: tokenizer.json\n", "");
  Replace("  steps: 20\n", "  num_train_epochs: 2\n");
  job_ += "tokenizer: {path: tokenizer.json}\n";
  const auto file = Start();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->notes, Contains(HasSubstr("tokenizer.path is read as data.tokenizer")));
}

TEST_F(TextDataTest, CountsEpochsInSteps) {
  Replace("  steps: 20\n", "  epochs: 1.5\n");
  const auto file = Start();
  ASSERT_TRUE(file.ok()) << file.status();
  const auto tokens = TokenFile::Open(file->job.data.train[0].path, EncodingOf(file->job));
  const int64_t windows = ((*tokens)->tokens() - 1) / 32;
  EXPECT_EQ(file->job.training.steps, ((windows * 3 + 1) / 2 + 7) / 8);
  EXPECT_THAT(file->notes, Contains(HasSubstr(absl::StrCat("training.epochs: 1.5 of ", windows))));
  const auto without = Read({.check_files = false});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->notes, Contains(HasSubstr("no data is counted here; taken as 1000 steps")));
  Replace("epochs: 1.5", "epochs: 0");
  EXPECT_THAT(Error(), HasSubstr("training.epochs: found 0; use more than 0"));
  Replace("epochs: 0", "epochs: 2, steps: 3");
  Replace("training:\n  seq_len: 32\n  global_batch_size: 8\n  epochs: 2, steps: 3\n",
          "training: {seq_len: 32, global_batch_size: 8, epochs: 2, steps: 3}\n");
  EXPECT_THAT(Error(), HasSubstr("training.epochs: stands beside training.steps"));
}

TEST(StepsOfEpochs, AreThoseThatAPersonMeans) {
  // As a double, 1.1 * 400 is a little more than 440.
  EXPECT_EQ(StepsOfEpochs(1.1, 400, 1), 440);
  EXPECT_EQ(StepsOfEpochs(1.1, 400, 8), 55);
  EXPECT_EQ(StepsOfEpochs(1, 7, 2), 4);
  EXPECT_EQ(StepsOfEpochs(0.001, 7, 2), 1);
  EXPECT_EQ(StepsOfEpochs(3, 1'000'000'007, 1), 3'000'000'021);
}

TEST_F(TextDataTest, IsOfTheFormatThatIsStated) {
  const auto by_name = Start();
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  folder_.Write("notes.dat", RowsForTest(100, 1));
  Replace("notes.jsonl", "notes.dat");
  Replace("  tokenizer: tokenizer.json\n", "  tokenizer: tokenizer.json\n  format: jsonl\n");
  const auto rows = Start();
  ASSERT_TRUE(rows.ok()) << rows.status();
  const auto tokens = [](const JobFile& file) {
    return (*TokenFile::Open(file.job.data.train[0].path, EncodingOf(file.job)))->tokens();
  };
  EXPECT_EQ(tokens(*rows), tokens(*by_name));
  Replace("notes.dat", "notes.jsonl");
  Replace("format: jsonl", "format: text");
  const auto text = Start();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_GT(tokens(*text), tokens(*by_name));
}

TEST_F(TextDataTest, BeginsAnewWhereWhatWasLeftIsDamaged) {
  const auto first = Start();
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string bin = first->job.data.train[0].path;
  const std::string output = bin.substr(0, bin.size() - 4);
  std::ifstream file(output + ".prepared.json");
  const auto record = nlohmann::json::parse(file);
  auto state = nlohmann::json::parse(record["state"].get<std::string>());
  for (const char* ending : {".bin", ".prepared.json"}) std::filesystem::remove(output + ending);
  std::filesystem::create_directory(output + ".preparing");
  state["is_complete"] = false;
  std::ofstream(output + ".preparing/state.json") << state;
  const auto again = Start();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job.data, first->job.data);
}

TEST_F(TextDataTest, IsNoPipe) {
  ASSERT_EQ(mkfifo((folder_.path() + "/pipe.txt").c_str(), 0600), 0);
  TokenCache cache(
      {.folder = folder_.path() + "/cache",
       .rules = {.tokenizer = folder_.path() + "/tokenizer.json", .bos = {}, .eos = {}},
       .on_progress = {}});
  const auto tokens =
      cache.Find({.path = folder_.path() + "/pipe.txt", .format = TextFormat::kText});
  EXPECT_THAT(std::string(tokens.status().message()),
              HasSubstr("pipe.txt: is no regular file, expected a file of text"));
}

TEST_F(TextDataTest, SaysWhatIsWrong) {
  Replace("vocab_size: 259", "vocab_size: 257");
  EXPECT_THAT(Error(), HasSubstr("tokenizer.json has ids up to 258, and model.vocab_size is 257"));
  Replace("vocab_size: 257", "vocab_size: 259");
  folder_.Write("notes.jsonl", "{\"text\": \"a\"}\n{\"txt\": 1}\n");
  EXPECT_THAT(Error(), HasSubstr("notes.jsonl:2: found the keys txt; expected text"));
  Replace("tokenizer: tokenizer.json", "tokenizer: nowhere");
  EXPECT_THAT(Error(), HasSubstr("nowhere"));
  Replace("tokenizer: nowhere", "format: text");
  EXPECT_THAT(Error(), HasSubstr("data.tokenizer: missing: data.train is text"));
}

// A small tokenizer without its end of text.
TEST_F(TextDataTest, AsksForTheEndOfDocumentsByItsKey) {
  std::ifstream file(folder_.path() + "/tokenizer.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  text.replace(text.find("<|endoftext|>"), 13, "<|otherwise|>");
  folder_.Write("tokenizer.json", text);
  EXPECT_THAT(Error(), HasSubstr("the tokenizer states no end of text; name the token's id with "
                                 "data.eos_token_id"));
  // The advice works, and changes nothing else.
  Replace("  cache: cache\n", "  cache: cache\n  eos_token_id: 10\n");
  const auto started = Start();
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_FALSE(started->job.data.reset_attention_mask);
  EXPECT_EQ(started->job.data.eos_token_id, 10);
  EXPECT_EQ(LastToken(*started), 10);
  EXPECT_THAT(started->notes, Contains(HasSubstr("data.eos_token_id: stands between documents, and "
                                                 "attention crosses it")));
  Replace("eos_token_id: 10", "eos_token_id: 300");
  EXPECT_THAT(Error(), HasSubstr("data.eos_token_id"));
}

TEST_F(TextDataTest, TakesTheKeyOfARowThatHoldsTheText) {
  const auto by_text = Start();
  ASSERT_TRUE(by_text.ok()) << by_text.status();
  std::string rows = RowsForTest(100, 1);
  for (size_t at = rows.find("\"text\""); at != std::string::npos; at = rows.find("\"text\"", at)) {
    rows.replace(at, 6, "\"body\"");
  }
  folder_.Write("notes.jsonl", rows);
  EXPECT_THAT(Error(),
              HasSubstr("notes.jsonl:1: found the keys id, body; expected text; name the one "
                        "that holds the text with text_key"));
  Replace("notes.jsonl", "notes.jsonl, text_key: body");
  const auto by_body = Start();
  ASSERT_TRUE(by_body.ok()) << by_body.status();
  EXPECT_EQ(Tokens(*by_body), Tokens(*by_text));
  EXPECT_EQ(Read()->job.data, by_body->job.data);
  // Another key is another text, and no text has one without rows.
  Replace("text_key: body", "text_key: text");
  EXPECT_THAT(Error(), HasSubstr("notes.jsonl:1: found the keys id, body; expected text"));
  folder_.Write("notes.txt", "a text");
  Replace("notes.jsonl, text_key: text", "notes.txt, text_key: body");
  EXPECT_THAT(Error(), HasSubstr("data.train.text_key: "));
  Replace("  tokenizer: tokenizer.json\n", "  format: bytes\n");
  EXPECT_THAT(Error(), HasSubstr("data.train.text_key: is of JSON lines that are tokenised, and "
                                 "data.format is bytes"));
}

TEST_F(TextDataTest, KnowsTheKeyOfARowAlsoWhereSomethingElseIsWrong) {
  Replace("notes.jsonl", "notes.jsonl, text_key: body");
  Replace("global_batch_size: 8", "global_batch_size: 8\n  stepps: 3");
  EXPECT_THAT(Error(), AllOf(HasSubstr("stepps"), Not(HasSubstr("text_key"))));
  Replace("  tokenizer: tokenizer.json\n", "  tokenizer: tokenizer.json\n  format: words\n");
  EXPECT_THAT(Error(), AllOf(HasSubstr("words"), Not(HasSubstr("known are path"))));
}

TEST_F(TextDataTest, KeepsNothingOfATextWithABadRow) {
  folder_.Write("notes.jsonl", RowsForTest(3000, 1) + "{\"txt\": 1}\n");
  EXPECT_THAT(Error(), HasSubstr("notes.jsonl:3001: found the keys txt"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/cache")) {
    EXPECT_EQ(entry.path().filename(), "stamps");
  }
}

TEST_F(TextDataTest, TokenisesNothingForAVocabularyThatIsTooSmall) {
  Replace("vocab_size: 259", "vocab_size: 257");
  EXPECT_THAT(Error(), HasSubstr("tokenizer.json has ids up to 258, and model.vocab_size is 257"));
  EXPECT_EQ(worked_, 0);
}

TEST_F(TextDataTest, TrustsNoCacheThatEverybodyWritesTo) {
  const std::string cache = folder_.path() + "/cache";
  std::filesystem::create_directory(cache);
  ASSERT_EQ(chmod(cache.c_str(), 01777), 0);
  EXPECT_THAT(Error(), HasSubstr("cache: everybody may write in it"));
  ASSERT_EQ(chmod(cache.c_str(), 0700), 0);
  const auto first = Start();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(worked_, 1);
  // Files of it that others may change are none; nor are links.
  const std::string bin = first->job.data.train[0].path;
  ASSERT_EQ(chmod(bin.c_str(), 0666), 0);
  EXPECT_THAT(Read()->notes, Contains(HasSubstr("tokenised when the job starts")));
  ASSERT_EQ(chmod(bin.c_str(), 0644), 0);
  usleep(50'000);  // a change of this tick of the clock may not be the last one
  EXPECT_EQ(Read()->job.data, first->job.data);
  std::filesystem::rename(bin, cache + "/moved");
  std::filesystem::create_symlink(cache + "/moved", bin);
  EXPECT_THAT(Read()->notes, Contains(HasSubstr("tokenised when the job starts")));
}

TEST_F(TextDataTest, TellsATextThatChangesWithinOneTickOfTheClock) {
  for (int i = 0; i < 20; ++i) {
    folder_.Write("notes.jsonl", RowsForTest(100, 2) + "{\"text\": \"a\"}\n");
    const auto a = Start();
    ASSERT_TRUE(a.ok()) << a.status();
    folder_.Write("notes.jsonl", RowsForTest(100, 2) + "{\"text\": \"b\"}\n");
    EXPECT_NE(Start()->job.data.train, a->job.data.train) << i;
  }
}

TEST(RoomForTokens, IsThatOfUsualText) {
  EXPECT_EQ(RoomForTokens(300, /*is_packed=*/false, 2), 200);
  EXPECT_EQ(RoomForTokens(300, /*is_packed=*/true, 4), 1600);
}

TEST_F(TextDataTest, AssumesStepsThatAWarmUpFitsInto) {
  Replace("  steps: 20\n", "  epochs: 1.5\n");
  job_ += "lr_scheduler: {warmup_steps: 2000}\n";
  const auto without = Read({.check_files = false});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->job.training.steps, 2000);
}

}  // namespace
}  // namespace weft
