// weft eval and weft generate on what a real run leaves, and while it goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/end_to_end/tiny_run.h"
#include "tests/worker/backend/same_bits.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// No byte of it follows two different ones, but for letters that two before it tell apart; some of
// its characters take two and three bytes.
constexpr char kLine[] = "das Schiffchen läuft quer durch die Kette – so wird Tuch;\n";

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// "valid_loss_hex" of the last step that has one.
std::string ValidLossHex(const TinyRun& run) {
  std::ifstream metrics(run.run_folder() + "/metrics.jsonl");
  std::string hex;
  for (std::string line; std::getline(metrics, line);) {
    hex = nlohmann::json::parse(line).value("valid_loss_hex", hex);
  }
  return hex;
}

TEST(Inference, GoesOnWithATextThatTheModelHasLearned) {
  TinyRun run;
  const std::string folder = std::filesystem::path(run.job_path()).parent_path();
  std::ofstream(folder + "/cloth.txt") << Repeated(kLine, 300);
  const TinyRun::Outcome trained = run.RunToEnd(
      {"--set", "data.train=[{path: cloth.txt}]", "--set", "data.split=0.1", "--set",
       "validation.interval=60", "--set", "validation.steps=1", "--set", "optimizer.lr=4.0e-3",
       "--set", "training.steps=120", "--set", "training.seq_len=64"});  // as long as the text
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ASSERT_LT(run.Metrics().back().loss, 0.1) << "the test would prove little";

  const std::string text(kLine);
  const auto generate = run.Weft({"generate", run.run_folder(), "--prompt", text.substr(0, 20),
                                  "--max-tokens", std::to_string(text.size() - 21), "--greedy"});
  const TinyRun::Outcome generated = TinyRun::Finish(*generate, 240);
  EXPECT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_EQ(text.substr(0, 20) + generated.out, text);

  // One process measures by the checkpoint what the run itself has measured, by four workers.
  const double validated = std::strtod(ValidLossHex(run).c_str(), nullptr);
  const auto eval = run.Weft({"eval", run.job_path(), "--json", "--threads", "1"});
  const TinyRun::Outcome evaluated = TinyRun::Finish(*eval, 240);
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const auto json = nlohmann::json::parse(evaluated.out);
  EXPECT_EQ(json["step"], 120);
  EXPECT_EQ(json["tokens"], 16 * 64);
  EXPECT_NEAR(json["loss"].get<double>() / validated, 1, 1e-6);

  // The validation data is no longer what it was: refused, not measured.
  std::ofstream(folder + "/cloth.txt") << Repeated(kLine, 299) << "something else";
  const auto changed = run.Weft({"eval", run.run_folder()});
  const TinyRun::Outcome refused = TinyRun::Finish(*changed, 240);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("cloth.txt: its content is not what the run read"));
  run.ExpectNothingLeft();
}

TEST(Inference, EvaluatesToTheLossOfARunOfOneWorker) {
  TinyRun run;
  const TinyRun::Outcome trained = run.RunToEnd(
      {"--set", "cluster.slots=1", "--set", "parallelism.dp=1", "--set", "parallelism.pp=1",
       "--set", "data.split=0.2", "--set", "validation.interval=3", "--set", "validation.steps=3",
       "--set", "training.steps=3", "--set", "training.seq_len=64"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto eval = run.Weft({"eval", run.run_folder(), "--json", "--threads", "1"});
  const TinyRun::Outcome evaluated = TinyRun::Finish(*eval, 240);
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const auto json = nlohmann::json::parse(evaluated.out);
  EXPECT_EQ(json["tokens"], 3 * 16 * 64);
  ExpectTheSameLoss(json["loss"].get<double>(), std::strtod(ValidLossHex(run).c_str(), nullptr));
}

TEST(Inference, LooksAtARunThatGoesOnAndPassesOverADamagedCheckpoint) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run({"--set", TinyRun::kEndless});
  run.WaitForStep(21);
  const auto generate = run.Weft({"generate", run.run_folder(), "--prompt", "The GNU General",
                                  "--max-tokens", "10", "--threads", "1"});
  const TinyRun::Outcome generated = TinyRun::Finish(*generate, 240);
  EXPECT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_GE(generated.out.size(), 11u);
  EXPECT_TRUE(weft->Running());
  weft->Signal(SIGINT);
  EXPECT_EQ(TinyRun::Finish(*weft, 240).exit_code, 0);

  const std::set<std::string> steps = run.Checkpoints();
  ASSERT_GE(steps.size(), 2u);
  const std::string newest = "step-" + std::to_string(run.LastStep());
  ASSERT_EQ(steps.count(newest), 1u);
  const std::string shard = run.run_folder() + "/checkpoint/" + newest + "/rank-00000.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  const auto passed_over =
      run.Weft({"generate", run.run_folder(), "--prompt", "The", "--max-tokens", "5"});
  const TinyRun::Outcome older = TinyRun::Finish(*passed_over, 240);
  EXPECT_EQ(older.exit_code, 0);
  EXPECT_THAT(older.err, HasSubstr("damaged: " + newest + ": rank-00000.safetensors"));
  const auto named = run.Weft({"generate", run.run_folder() + "/checkpoint/" + newest, "--prompt",
                               "The", "--max-tokens", "5"});
  const TinyRun::Outcome refused = TinyRun::Finish(*named, 240);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("rank-00000.safetensors"));
  EXPECT_EQ(refused.out, "");
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
