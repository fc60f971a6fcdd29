// People hand these to weft by mistake or by malice: devices without an end, files of gigabytes,
// patterns that match the machine, weights of NaN, a stdout that takes nothing. Each is answered
// soon, by name, with a documented exit code; memory is limited so that no test takes the
// machine's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/launcher/commands/limited_run.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/launcher/saved_model.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Weft() {
  return BinaryPath("/bin/weft");
}

// A file of 3 GB that takes no room on the disk.
void MakeHuge(const std::string& path) {
  std::ofstream(path) << "";
  std::filesystem::resize_file(path, 3'000'000'000);
}

TEST(HostileModel, OfExpertsIsRefusedByName) {
  const JobFolder folder;
  folder.Write("job.yaml", JobWith("", absl::StrCat(kGoodJob, "tokenizer: {}\n")));
  std::filesystem::create_directory(folder.path() + "/mixtral");
  folder.Write("mixtral/config.json",
               R"({"model_type": "mixtral", "vocab_size": 256, "hidden_size": 16,
                   "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
                   "intermediate_size": 24, "max_position_embeddings": 64, "num_local_experts": 4,
                   "num_experts_per_tok": 2})");
  const std::string says =
      "mixtral: model_type mixtral: a model of 4 experts is planned, but not run yet";
  ExpectAnswers(folder, {{"eval mixtral --data corpus.txt --format bytes", 2, says},
                         {"generate mixtral --prompt a --format bytes", 2, says},
                         {"generate mixtral --prompt-ids 1,2", 2, says}});
  // Planning does not read the weights that the engine could not read.
  folder.Write("job.yaml",
               "job: {name: experts}\nmodel: {init_from: mixtral}\n"
               "data: {format: bytes, train: [{path: corpus.txt}]}\n"
               "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n"
               "optimizer: {lr: 1.0e-3}\ncluster: {profile: cpu, slots: 4}\n");
  const Ran plan = RunLimited(folder, "plan job.yaml");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("weights of mixtures of experts are not read yet"));
}

TEST(HostileModel, OfNotANumberHasALossOfThatName) {
  const JobFolder folder;
  const ModelShape model = SmallModel(256);
  std::vector<std::vector<float>> values = ArbitraryWeights(model);
  values[0][97 * 16] = std::numeric_limits<float>::quiet_NaN();  // of 'a', which the corpus is of
  SaveModel(folder, model, values, "bytes");
  const std::string says = "weft: the loss is not finite";
  const Ran json = RunLimited(folder, "eval saved --data corpus.txt --json --threads 1");
  EXPECT_EQ(json.exit_code, 1) << json.err;
  EXPECT_THAT(json.err, HasSubstr(says));
  const auto answer = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(answer.is_object()) << json.out;
  EXPECT_TRUE(answer["loss"].is_null() && answer["perplexity"].is_null()) << json.out;
  EXPECT_THAT(answer["loss_hex"].get<std::string>(), HasSubstr("nan"));
  const Ran text = RunLimited(folder, "eval saved --data corpus.txt --threads 1");
  EXPECT_EQ(text.exit_code, 1) << text.err;
  EXPECT_THAT(text.out, HasSubstr("nan nats per byte"));
  ExpectAnswers(folder, {{"generate saved --prompt a --threads 1", 1, "logits are not finite"}});
}

TEST(HostileFile, IsNeverReadWithoutEnd) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  folder.Write("job.yaml", kGoodJob);
  MakeHuge(folder.path() + "/huge");
  MakeHuge(folder.path() + "/huge.yaml");
  std::filesystem::create_directories(folder.path() + "/hf");
  MakeHuge(folder.path() + "/hf/config.json");
  std::filesystem::create_directories(folder.path() + "/tokens");
  MakeHuge(folder.path() + "/tokens/tokenizer.json");
  const std::string size = "holds 3000000000 bytes, at most ";
  ExpectAnswers(
      folder,
      {{"generate saved --prompt-file /dev/zero", 2, "--prompt-file: /dev/zero: is a device"},
       {"generate saved --prompt-file huge", 2, absl::StrCat("huge: ", size, "4194304")},
       {"generate saved --prompt-file .", 2, "--prompt-file: .: is a folder"},
       {"plan huge.yaml", 2, absl::StrCat("huge.yaml: ", size, "1048576")},
       {"plan /dev/zero", 2, "/dev/zero: is a device"},
       {"plan job.yaml --cluster ./huge.yaml", 2, size},
       {"run job.yaml --hostfile huge", 2, absl::StrCat("--hostfile huge: ", size, "1048576")},
       {"run job.yaml --hostfile /dev/zero", 2, "--hostfile /dev/zero: is a device"},
       {"plan job.yaml --set model.path=hf", 2, size},
       {"eval hf --data corpus.txt", 2, size},
       {"status /dev/zero", 2, "/dev/zero: is a device"},
       {"stop huge", 2, size}});
  // As tokens, not as bytes: only then is there a tokenizer to read.
  const JobFolder of_ids;
  SaveModel(of_ids, SmallModel(256), "llmc");
  ExpectAnswers(
      of_ids,
      {{absl::StrCat("generate saved --prompt a --tokenizer ", folder.path(), "/tokens"), 2, size},
       {"generate saved --prompt a --tokenizer /dev/zero", 2, "is a device"}});
}

TEST(HostileFile, StdinIsReadToItsLimit) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const Ran ran = RunLimited(folder, "generate saved --prompt-file -", "/dev/zero");
  EXPECT_EQ(ran.exit_code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("--prompt-file: stdin: holds more than 4194304 bytes"));
}

// Nobody writes to it: opening one for reading waits for that, unless asked not to.
TEST(HostileFile, APipeWithoutAWriterIsNotWaitedForLong) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  folder.Write("job.yaml", JobWith("format: bytes", "format: auto"));
  ASSERT_EQ(mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  const std::string says = "pipe: is a pipe that its writer did not end within 8 s";
  ExpectAnswers(folder, {{"plan pipe", 2, says}});
  std::filesystem::remove(folder.path() + "/corpus.txt");
  std::filesystem::rename(folder.path() + "/pipe", folder.path() + "/corpus.txt");
  ExpectAnswers(folder, {{"plan job.yaml", 2, "corpus.txt is a device, pipe or socket; name files"},
                         {"plan job.yaml --without-data", 0, ""},
                         {"eval saved --data corpus.txt", 2, "device, pipe or socket"}});
}

// Opening one for writing waits for a reader, unless asked not to.
TEST(HostileFile, APipeWithoutAReaderIsNotWrittenTo) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  folder.Write("job.yaml", kGoodJob);
  ASSERT_EQ(mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  const std::string layout = " --layout dp=1,tp=1,pp=1,micro_batch_size=8";
  ExpectAnswers(
      folder,
      {{"plan job.yaml --svg pipe", 2, "--svg: pipe: is a device, pipe or socket; name a file"},
       {"plan job.yaml --svg pipe" + layout, 2, "--svg: pipe: is a device, pipe or socket"},
       {"plan job.yaml --svg .", 2, "--svg: .: is a folder; name a file"},
       {"plan job.yaml --svg none/a.svg", 2, "--svg: none/a.svg: cannot be written: No such file"},
       {"calibrate --output pipe", 2, "--output: pipe: is a device, pipe or socket"},
       {"export saved --hf pipe", 2, "pipe: is there already, expected a new or empty folder"}});
}

// The pipe is like that of a shell's <(...).
TEST(HostileFile, APipeWithAWriterIsRead) {
  const JobFolder folder;
  folder.Write("job.yaml", kGoodJob);
  const Ran ran = RunLimited(folder, "plan /dev/stdin --without-data", "job.yaml");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  ASSERT_EQ(mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  const Ran piped = RunWeft(folder,
                            absl::StrCat("-c '(sleep 0.2; cat job.yaml >pipe) & ", Weft(),
                                         " plan pipe; code=$?; wait; exit $code'"),
                            {.program = "bash", .most_s = kMostSeconds});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
}

// Waiting for stdin is the caller's wish; a Ctrl-C ends it.
TEST(HostileFile, AnInterruptEndsTheWaitForStdin) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  ASSERT_EQ(mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  const Ran ran = RunWeft(folder,
                          absl::StrCat("-c 'exec timeout -s INT 1 ", Weft(), " generate saved ",
                                       "--prompt-file - <>pipe'"),
                          {.program = "bash", .most_s = kMostSeconds});
  EXPECT_EQ(ran.exit_code, 124) << ran.err;  // timeout's, for what it had to interrupt
  EXPECT_EQ(ran.out, "");
}

TEST(HostileSteps, BeyondTheDataAreRefused) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  const std::string eval = "eval saved --data corpus.txt --threads 1 --steps ";
  const std::string says =
      "of 4 sequences each is beyond the data, which holds 249; use 1 to 62, "
      "or 0 for all of them once";
  ExpectAnswers(folder, {{eval + "63", 2, "--steps: 63 " + says},
                         {eval + "99999999999999", 2, "--steps: 99999999999999 " + says},
                         {eval + "9223372036854775807", 2, says},
                         {eval + "62", 0, ""},
                         {eval + "1 --batch 1048576", 0, ""}});
}

TEST(HostileYaml, IsAnsweredSoon) {
  const JobFolder folder;
  std::string keys, aliases = "a: &a \"" + std::string(500'000, 'x') + "\"\nb: [*a", list = "x: [1";
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&keys, "k", i, ": 1\n");
  for (int i = 0; i < 15'000; ++i) absl::StrAppend(&aliases, ", *a");
  for (int i = 0; i < 300'000; ++i) absl::StrAppend(&list, ",1");
  std::string nested = "a0: &a0 [x, x]\n", many;
  for (int i = 1; i < 30; ++i) {
    absl::StrAppend(&nested, "a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  }
  for (int i = 0; i < 15'000; ++i) absl::StrAppend(&many, "trainingg", i, ": 1\n");
  std::string documents;
  for (int i = 0; i < 250'000; ++i) documents += "---\n";
  folder.Write("keys.yaml", keys);
  folder.Write("many.yaml", many);
  folder.Write("aliases.yaml", aliases + "]\n");
  folder.Write("nested.yaml", nested);
  folder.Write("list.yaml", list + "]\n");
  folder.Write("documents.yaml", documents);
  folder.Write("deep.yaml", std::string(500'000, '['));
  folder.Write("maps.yaml", "a: " + std::string(1000, '{'));
  folder.Write("block.yaml", [] {
    std::string text;
    for (int i = 0; i < 600; ++i)
      absl::StrAppend(&text, std::string(static_cast<size_t>(i), ' '), "a:\n");
    return text;
  }());
  folder.Write("self.yaml", "a: &a [*a]\n");
  folder.Write("key.yaml", "? " + std::string(900'000, 'k') + "\n: 1\n");
  const std::string large = "nested too deep or too large to be a spec";
  ExpectAnswers(folder, {{"plan keys.yaml", 2, large},
                         {"plan many.yaml", 2, "weft: more than 100 errors"},
                         {"plan aliases.yaml", 2, large},
                         {"plan nested.yaml", 2, large},
                         {"plan list.yaml", 2, large},
                         {"plan documents.yaml", 2, "a second document starts here"},
                         {"plan deep.yaml", 2, "not valid YAML"},
                         {"plan maps.yaml", 2, "not valid YAML"},
                         {"plan block.yaml", 2, ""},
                         {"plan self.yaml", 2, "self.yaml:1"},
                         {"plan key.yaml", 2, "kkk...: unknown key; none is that long"}});
}

TEST(HostilePattern, LooksAtSoManyFilesAndNoMore) {
  const JobFolder folder;
  folder.Write("job.yaml", JobWith("corpus.txt", "\"many/*\""));
  std::filesystem::create_directory(folder.path() + "/many");
  for (int i = 0; i < 20'001; ++i) folder.Write(absl::StrCat("many/", i), "");
  ExpectAnswers(folder, {{"plan job.yaml", 2, "or matches more than 20000; name fewer"}});
  // The whole machine: either there is little on it, or it is too much.
  folder.Write("job.yaml", JobWith("corpus.txt", "\"/*/*/*/*/*/*/*\""));
  const Ran ran = RunLimited(folder, "plan job.yaml");
  EXPECT_EQ(ran.exit_code, 2) << ran.err;
}

// Patterns mean what they mean to a shell.
TEST(HostilePattern, MeansWhatAShellMeans) {
  const JobFolder folder;
  for (const char* name : {"d1", "d2", ".d3"}) {
    std::filesystem::create_directory(absl::StrCat(folder.path(), "/", name));
    folder.Write(absl::StrCat(name, "/a.txt"), std::string(4000, 'a'));
    folder.Write(absl::StrCat(name, "/b.txt"), std::string(4000, 'b'));
    folder.Write(absl::StrCat(name, "/.c.txt"), std::string(4000, 'c'));
  }
  folder.Write("e*.txt", std::string(4000, 'e'));
  folder.Write("ee.txt", std::string(4000, 'e'));
  const auto train_of = [&folder](const std::string& pattern) {
    folder.Write("job.yaml", JobWith("corpus.txt", "'" + pattern + "'"));
    return RunLimited(folder, "plan job.yaml --json");
  };
  EXPECT_EQ(train_of("d*/[ab].txt").exit_code, 0);
  EXPECT_EQ(train_of("./d1/../*/a.txt").exit_code, 0);
  EXPECT_EQ(train_of("e*.txt").exit_code, 0);  // exactly this name
  EXPECT_EQ(train_of("d?/c.txt").exit_code, 2);
  EXPECT_EQ(train_of("d?/*c.txt").exit_code, 2);  // hidden files are not meant
  EXPECT_EQ(train_of("*/*.txt").exit_code, 0);
}

// A job that does not fit one machine is no reason to price two without a network between them.
TEST(HostileProfile, OfOneMachineIsNotMadeTwo) {
  const JobFolder folder;
  folder.Write("job.yaml", JobWith("n_embd: 32", "n_embd: 16384"));
  folder.Write("lab.yaml",
               "name: lab\nslots_per_node: 4\n"
               "device: {name: d, backend: cpu, memory_bytes: 2e9, library_bytes: 2e8,\n"
               "         peak_flops_per_s: {fp32: 1e11}, peak_memory_bytes_per_s: 8e9,\n"
               "         efficiency: {matmul_fp32: 1, attention: 1, streaming: 1},\n"
               "         op_overhead_s: 2e-6}\n"
               "intra_node: {latency_s: 2e-5, bytes_per_s: 3e9}\n");
  const Ran ran = RunLimited(folder, "plan job.yaml --cluster ./lab.yaml");
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("nothing fits"), Not(HasSubstr("cluster.nodes"))));
  // The same where it is described, but wrongly: also of a link that one node does not use.
  folder.Write("net.yaml",
               "name: net\nslots_per_node: 4\n"
               "device: {name: d, backend: cpu, memory_bytes: 2e9, library_bytes: 2e8,\n"
               "         peak_flops_per_s: {fp32: 1e11}, peak_memory_bytes_per_s: 8e9,\n"
               "         efficiency: {matmul_fp32: 1, attention: 1, streaming: 1},\n"
               "         op_overhead_s: 2e-6}\n"
               "intra_node: {latency_s: 2e-5, bytes_per_s: 3e9}\n"
               "inter_node: {latency_s: -1, bytes_per_s: 3e9}\n");
  ExpectAnswers(folder, {{"plan job.yaml --cluster ./net.yaml", 2,
                          "net.yaml:8: inter_node.latency_s: -1 is not a time"}});
}

// A number beyond what a double holds.
TEST(HostileModel, OfANumberWithoutEndIsRefused) {
  const JobFolder folder;
  std::filesystem::create_directory(folder.path() + "/hf");
  folder.Write("hf/config.json", R"({"model_type": "gpt2", "layer_norm_epsilon": 1e400})");
  ExpectAnswers(folder, {{"eval hf --data corpus.txt --format bytes", 2,
                          "expected none beyond 1.8e308; expected a config.json"}});
}

TEST(HostileOutput, ThatTakesNothingIsAnError) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  folder.Write("job.yaml", kGoodJob);
  for (const char* arguments :
       {"plan job.yaml", "plan job.yaml --json", "plan job.yaml --why dp=4,pp=1",
        "plan job.yaml --layout dp=4", "eval saved --data corpus.txt --steps 1 --threads 1",
        "eval saved --data corpus.txt --steps 1 --threads 1 --json",
        "generate saved --prompt a --max-tokens 3 --threads 1", "export saved --hf hf", "doctor",
        "--version", "--help", "plan --help"}) {
    const Ran ran = RunLimited(folder, absl::StrCat(arguments, " >/dev/full"));
    EXPECT_EQ(ran.exit_code, 1) << arguments << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("weft: the output could not be written")) << arguments;
  }
  const Ran closed = RunLimited(folder, "plan job.yaml >&-");
  EXPECT_EQ(closed.exit_code, 1);
  EXPECT_THAT(closed.err, HasSubstr("could not be written: Bad file descriptor"));
  // Another failure is what counts.
  EXPECT_EQ(RunLimited(folder, "plan nowhere.yaml >/dev/full").exit_code, 2);
}

TEST(HostileOutput, AReaderThatHasReadEnoughIsNone) {
  const JobFolder folder;
  SaveModel(folder, SmallModel(256), "bytes");
  folder.Write("job.yaml", kGoodJob);
  for (const char* arguments : {"plan job.yaml", "plan job.yaml --json", "--help",
                                "generate saved --prompt a --max-tokens 39 --threads 1"}) {
    const Ran ran =
        RunWeft(folder, absl::StrCat("-c 'set -o pipefail; ", Weft(), " ", arguments, " | true'"),
                {.program = "bash", .most_s = kMostSeconds});
    EXPECT_EQ(ran.exit_code, 0) << arguments << ran.err;
    EXPECT_EQ(ran.err, "") << arguments;
  }
}

// A socket of somebody else, who runs the test as root: the only one who may become another.
TEST(HostileRun, OfAnotherUserIsNamedSo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const JobFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  folder.Write("lock", "");
  const int lock = open((folder.path() + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);  // as of a run that goes on
  folder.Write("weftd.sock", "");
  std::filesystem::permissions(folder.path() + "/weftd.sock", std::filesystem::perms(0600));
  for (const char* verb : {"status", "stop", "attach", "checkpoint", "logs", "events", "watch"}) {
    const Ran ran = RunWeft(
        folder,
        absl::StrCat("--reuid=65534 --clear-groups ", Weft(), " ", verb, " ", folder.path()),
        {.program = "setpriv", .most_s = kMostSeconds});
    EXPECT_EQ(ran.exit_code, 1) << verb << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("weftd.sock: the run belongs to another user")) << verb;
  }
  close(lock);
}

TEST(HostileName, IsShownWithoutControlCharacters) {
  const JobFolder folder;
  folder.Write("job.yaml",
               JobWith("steps: 20", "steps: 20\n  \"\\e[31mred\\x07\": 1\n  \xff\xfe: 2"));
  const std::string name = folder.path() + "/\x1b[31m\xff.yaml";
  std::ofstream(name) << "job: 1\n";
  for (const std::string& arguments :
       {std::string("plan job.yaml"), absl::StrCat("plan '", name, "'"),
        absl::StrCat("status '", name, "'"), std::string("eval '\x1b[31m\xff'"),
        std::string("plan --\x1b[31m")}) {
    const Ran ran = RunLimited(folder, arguments);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    for (const char c : ran.err) {
      const auto byte = static_cast<unsigned char>(c);
      ASSERT_TRUE(byte >= 0x20 || byte == '\n') << arguments << ": " << ran.err;
      ASSERT_LT(byte, 0xf5) << arguments << ": " << ran.err;
    }
  }
}

}  // namespace
}  // namespace weft
