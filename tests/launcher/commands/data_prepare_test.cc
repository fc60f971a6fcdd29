// `weft data prepare` as a person runs it: what it writes, what it refuses and in which words, and
// what it takes of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/data/prepare/small_tokenizer.h"
#include "tests/launcher/commands/limited_run.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kMostMemoryKib = int64_t{1} << 20;

class DataPrepareTest : public testing::Test {
 protected:
  DataPrepareTest() { WriteSmallTokenizer(folder_.path() + "/tokenizer.json"); }
  Ran Prepare(const std::string& arguments, const std::string& input = "/dev/null") {
    return RunLimited(folder_, "data prepare --tokenizer tokenizer.json " + arguments, input);
  }
  std::string Read(const std::string& name) {
    std::ifstream file(folder_.path() + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void EvalNamesItsOwnOptions();

  JobFolder folder_;
};

TEST_F(DataPrepareTest, SaysWhatItHasWritten) {
  folder_.Write("a.jsonl", "{\"text\": \"the A\"}\n{\"text\": \"\"}\n{\"text\": \"BCDEFGH\"}\n");
  const Ran ran = Prepare("a.jsonl --output out --seq-len 4");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("out.{bin,idx}\n"
                                 "  documents    2, and 1 empty ones left out\n"
                                 "  tokens       12 of 16 bits; 1.000 bytes of text each\n"
                                 "  lengths      6.0 tokens a document, 4 to 8\n"
                                 "  begin, end   nothing; 258 <|endoftext|>\n"
                                 "  seq_len      4: 50.00 % of the documents are longer, 33.33 % "
                                 "of the tokens lie beyond\n"));
  EXPECT_EQ(Read("out.bin").size(), 24u);
  const Ran again = Prepare("a.jsonl --output out.bin --seq-len 4 --json");
  const auto json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["was_there"], true);
  EXPECT_EQ(json["counts"]["tokens"], 12);
}

// Texts may take hours: nothing is tokenised for a job that is refused for something else.
TEST_F(DataPrepareTest, ComesAfterAllElseOfAJobIsJudged) {
  folder_.Write("notes.jsonl", RowsForTest(100, 1));
  std::string job = JobWith("  format: bytes\n", "  tokenizer: tokenizer.json\n  cache: cache\n");
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  job = replaced(replaced(job, "corpus.txt", "notes.jsonl"), "vocab_size: 256", "vocab_size: 259");
  const std::string wrong[] = {replaced(job, "pp: 2", "pp: 3"),
                               replaced(job, "lr: 1.0e-3", "lr: -1"),
                               replaced(job, "n_embd: 32", "n_embd: 131072")};
  for (const std::string& each : wrong) {
    folder_.Write("job.yaml", each);
    for (const char* const verb : {"run", "submit"}) {
      const Ran ran = RunLimited(folder_, absl::StrCat(verb, " ", folder_.job()));
      EXPECT_NE(ran.exit_code, 0);
      EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/cache")) << verb << each << ran.err;
    }
  }
}

TEST_F(DataPrepareTest, FillsTheCacheOfAHostForAJob) {
  folder_.Write("notes.jsonl", RowsForTest(100, 1));
  std::string job = JobWith("  format: bytes\n", "  tokenizer: tokenizer.json\n  cache: cache\n");
  job.replace(job.find("corpus.txt"), 10, "notes.jsonl");
  folder_.Write("job.yaml", job);
  const Ran small = RunLimited(folder_, "data cache job.yaml");
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.err, HasSubstr("has ids up to 258, and model.vocab_size is 256"));
  const Ran ran = RunLimited(folder_, "data cache job.yaml --set model.vocab_size=259");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, testing::MatchesRegex(".*/cache/notes.jsonl-[0-9a-f]+\\.bin\n"));
  EXPECT_TRUE(std::filesystem::exists(ran.out.substr(0, ran.out.size() - 1)));
  EXPECT_EQ(RunLimited(folder_, "data cache job.yaml --set model.vocab_size=259").out, ran.out);
}

TEST_F(DataPrepareTest, ReadsAStreamAsItReadsAFile) {
  folder_.Write("a.jsonl", RowsForTest(100, 1));
  folder_.Write("a.gz", Gzipped(RowsForTest(100, 1)));
  ASSERT_EQ(Prepare("a.jsonl --output file").exit_code, 0);
  ASSERT_EQ(Prepare("- --output stream", folder_.path() + "/a.jsonl").exit_code, 0);
  ASSERT_EQ(Prepare("- --output packed", folder_.path() + "/a.gz").exit_code, 0);
  EXPECT_EQ(Read("file.bin"), Read("stream.bin"));
  EXPECT_EQ(Read("file.bin"), Read("packed.bin"));
}

TEST_F(DataPrepareTest, RefusesByNameWithACure) {
  folder_.Write("good.jsonl", "{\"text\": \"a\"}\n");
  folder_.Write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n");
  folder_.Write("key.jsonl", "{\"content\": \"a\"}\n");
  folder_.Write("cut.jsonl.gz", Gzipped(RowsForTest(500, 2)).substr(0, 900));
  folder_.Write("cut.jsonl.zst", Zstandard(RowsForTest(500, 2)).substr(0, 900));
  folder_.Write("table.parquet", "PAR1");
  folder_.Write("empty.jsonl", "");
  std::filesystem::create_directory(folder_.path() + "/dir");
  ExpectAnswers(
      folder_,
      {{"data prepare good.jsonl --tokenizer tokenizer.json", 2, "--output is required"},
       {"data prepare good.jsonl --tokenizer none --output o", 2, "none"},
       {"data", 2, "subcommand"},
       {"data prepare table.parquet --tokenizer tokenizer.json --output o", 2,
        "| weft data prepare -"},
       {"data prepare bad.jsonl --tokenizer tokenizer.json --output o", 2,
        "bad.jsonl:2: text: found a number, expected a text; mend it, or leave up to N"},
       {"data prepare key.jsonl --tokenizer tokenizer.json --output o", 2,
        "key.jsonl:1: found the keys content; expected text"},
       {"data prepare cut.jsonl.gz --tokenizer tokenizer.json --output o2", 1,
        "cut.jsonl.gz: the gzip file ends within a member"},
       {"data prepare cut.jsonl.zst --tokenizer tokenizer.json --output o3", 1,
        "cut.jsonl.zst: the zstd file ends within a frame"},
       {"data prepare empty.jsonl --tokenizer tokenizer.json --output o4", 2, "no document"},
       {"data prepare dir --tokenizer tokenizer.json --output o5", 2, "dir: holds no file"},
       {"data prepare good.jsonl --tokenizer tokenizer.json --output no/where", 1, "no/where"},
       {"data prepare good.jsonl --tokenizer tokenizer.json --output o6 --end nothing", 2,
        "--end: the tokenizer has no token nothing"},
       {"data prepare good.jsonl --tokenizer tokenizer.json --output o7 --format arrow", 2,
        "--format"}});
  const Ran ran = Prepare("bad.jsonl --output o --max-bad-rows 1");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("bad.jsonl:2: text: found a number, expected a text; left out"));
  EXPECT_THAT(ran.out, HasSubstr("documents    1, and 1 bad rows"));
}

// Rows, packed files and devices do not say how much weft takes of the machine.
TEST_F(DataPrepareTest, TakesAtMostAGibibyte) {
  folder_.Write("line.jsonl", "");
  std::filesystem::resize_file(folder_.path() + "/line.jsonl", uintmax_t{1} << 30);
  folder_.Write("bomb.jsonl.zst", Zstandard(std::string(size_t{200} << 20, ' ')));
  folder_.Write("deep.jsonl", std::string(size_t{24} << 20, '['));
  std::string numbers = "{\"text\":\"a\",\"n\":[0";
  while (numbers.size() < (size_t{24} << 20)) numbers += ",1";
  folder_.Write("numbers.jsonl", numbers + "]}\n");
  std::string row = "{\"text\":\"";
  row.append(size_t{24} << 20, '\'');
  folder_.Write("long.jsonl", row + "\"}\n");
  EXPECT_THAT(Prepare("line.jsonl --output a").err,
              HasSubstr("line.jsonl:1: found a row of more than 32 MiB"));
  EXPECT_THAT(Prepare("bomb.jsonl.zst --output b").err, HasSubstr("more than 32 MiB"));
  EXPECT_THAT(Prepare("deep.jsonl --output c").err, HasSubstr("found no JSON object"));
  EXPECT_EQ(Prepare("numbers.jsonl --output d").exit_code, 0);
  EXPECT_EQ(Prepare("long.jsonl --output e --threads 2").exit_code, 0);
  EXPECT_THAT(Prepare("/dev/zero --input-format text --output f").err, HasSubstr("/dev/zero"));
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  EXPECT_LT(usage.ru_maxrss, kMostMemoryKib);
}

TEST_F(DataPrepareTest, GoesOnAfterADiskThatWasFull) {
  folder_.Write("a.jsonl", RowsForTest(3000, 3));
  ASSERT_EQ(Prepare("a.jsonl --output whole").exit_code, 0);
  folder_.Write("small.sh", "ulimit -f 100; exec \"$@\"\n");
  const Ran full = RunWeft(
      folder_,
      BinaryPath("/bin/weft") + " data prepare --tokenizer tokenizer.json a.jsonl --output out",
      {.program = "bash small.sh"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("out.preparing/tokens: cannot be written: File too large; make "
                                  "room and give the same command again"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/out.bin"));
  ASSERT_EQ(Prepare("a.jsonl --output out").exit_code, 0);
  EXPECT_EQ(Read("out.bin"), Read("whole.bin"));
  EXPECT_EQ(Read("out.idx"), Read("whole.idx"));
}

TEST_F(DataPrepareTest, KeepsWhatWasDoneWhenItIsStopped) {
  folder_.Write("a.jsonl", RowsForTest(8000, 4));
  ASSERT_EQ(Prepare("a.jsonl --output whole").exit_code, 0);
  // Its writer never ends: the wait for it does. What is killed has written something.
  ASSERT_EQ(mkfifo((folder_.path() + "/pipe").c_str(), 0600), 0);
  folder_.Write("stop.sh",
                "exec 3<>pipe; head -c 800000 a.jsonl >&3 & head=$!; \"$@\" <pipe & weft=$!\n"
                "for i in $(seq 600); do [ -s out.preparing/tokens ] && break; sleep 0.1; done\n"
                "kill -INT $weft; wait $weft; code=$?; kill $head 2>/dev/null; exit $code\n");
  const Ran ran = RunWeft(
      folder_, BinaryPath("/bin/weft") + " data prepare --tokenizer tokenizer.json - --output out",
      {.program = "bash stop.sh", .most_s = 100});
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("the same command goes on from here"));
  const Ran rest = Prepare("- --output out --json", folder_.path() + "/a.jsonl");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_GT(nlohmann::json::parse(rest.out)["documents_before"], 0);
  EXPECT_EQ(Read("out.bin"), Read("whole.bin"));
  // Another stream is not taken for that one.
  folder_.Write("b.jsonl", RowsForTest(10, 5));
  const Ran other = Prepare("- --output out", folder_.path() + "/b.jsonl");
  EXPECT_EQ(other.exit_code, 1) << other.out;
  EXPECT_THAT(other.err, HasSubstr("out: is of a stream that was read before"));
}

// The folder `outputs/small` is a run's on notes.jsonl.
void DataPrepareTest::EvalNamesItsOwnOptions() {
  const auto error = [&](const std::string& rest) {
    return RunWeft(folder_, "eval outputs/small --data " + rest).err;
  };
  const std::string texts = " --tokenizer tokenizer.json";
  folder_.Write("body.jsonl", "{\"body\": \"a\"}\n");
  folder_.Write("a.txt", "a text");
  EXPECT_THAT(error("body.jsonl" + texts),
              HasSubstr("found the keys body; expected text; name the one that holds the text with "
                        "--text-key"));
  EXPECT_THAT(error("a.txt --text-key body" + texts),
              HasSubstr("--text-key: a.txt is text, which has no keys; leave it out"));
  EXPECT_THAT(error("a.txt" + texts), HasSubstr("use a longer file or a smaller --seq-len"));
  EXPECT_THAT(error("a.txt --text-key body --format bytes"),
              HasSubstr("--text-key: is of rows of JSON lines that are tokenised"));
  EXPECT_THAT(error("notes.bin --text-key body"),
              HasSubstr("--text-key: is of rows of JSON lines that are tokenised"));
  // A cache of the run that everybody writes to is not used, and the user's is named by its key.
  const std::string own = folder_.path() + "/other/weft/tokens";
  const RunWeftOptions options = {.program = absl::StrCat("XDG_CACHE_HOME=", folder_.path(),
                                                          "/other ", BinaryPath("/bin/weft"))};
  const std::string cache = folder_.path() + "/weft/tokens";
  ASSERT_EQ(chmod(cache.c_str(), 0777), 0);
  RunWeft(folder_, "eval outputs/small --data a.txt" + texts, options);
  EXPECT_TRUE(std::filesystem::exists(own));
  ASSERT_EQ(chmod(own.c_str(), 0777), 0);
  EXPECT_THAT(RunWeft(folder_, "eval outputs/small --data a.txt" + texts, options).err,
              HasSubstr("name a folder of your own with XDG_CACHE_HOME"));
  ASSERT_EQ(chmod(cache.c_str(), 0755), 0);
}

// The job is run twice: the second start finds the tokens.
TEST_F(DataPrepareTest, TrainsOnTextThatNobodyPrepared) {
  folder_.Write("notes.jsonl", RowsForTest(200, 5));
  std::string job =
      JobWith("  format: bytes\n",
              "  tokenizer: tokenizer.json\n  cache: weft/tokens\n  eos_token_id: 10\n"
              "  reset_attention_mask: true\n");
  for (const auto& [from, to] :
       {std::pair("corpus.txt", "notes.jsonl"), std::pair("vocab_size: 256", "vocab_size: 259"),
        std::pair("steps: 20", "epochs: 0.1"),
        std::pair("{dp: 2, pp: 2, tp: 1}", "{dp: 2, pp: 1, tp: 1}")}) {
    job.replace(job.find(from), std::string(from).size(), to);
  }
  folder_.Write("job.yaml", job);
  const std::string cache = folder_.path() + "/weft/tokens";
  EXPECT_THAT(RunWeft(folder_, "submit job.yaml --dry-run").err, HasSubstr("--dry-run: prints"));
  EXPECT_THAT(RunWeft(folder_, "submit job.yaml --dry-run --set cluster.scheduler=slurm").out,
              HasSubstr("#SBATCH --job-name=small"));
  EXPECT_FALSE(std::filesystem::exists(cache));
  const Ran first = RunWeft(folder_, "run job.yaml");
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_THAT(first.out, HasSubstr("tokens of 1 texts made now"));
  EXPECT_THAT(first.out, HasSubstr("--set training.epochs=0.2"));
  const Ran again = RunWeft(folder_, "run job.yaml --fresh");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("tokens of 0 texts made now"));
  // Its validation may be on text, too.
  const Ran eval =
      RunWeft(folder_, "eval outputs/small --data notes.jsonl --tokenizer tokenizer.json --json",
              {.program = absl::StrCat("XDG_CACHE_HOME=", folder_.path(), "/other ",
                                       BinaryPath("/bin/weft"))});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_GT(nlohmann::json::parse(eval.out)["tokens"], 1000);
  // The documents of the run end as those of its training did: their tokens were there, in the
  // run's own cache.
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/other"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    files += entry.path().extension() == ".bin" ? 1 : 0;
  }
  EXPECT_EQ(files, 1);
  ASSERT_EQ(mkfifo((folder_.path() + "/p.txt").c_str(), 0600), 0);
  EXPECT_THAT(
      RunWeft(folder_, "eval outputs/small --data p.txt --tokenizer tokenizer.json", {.most_s = 20})
          .err,
      HasSubstr("p.txt: is no regular file"));
  const Ran refused =
      RunWeft(folder_, "eval outputs/small --data notes.bin --tokenizer tokenizer.json");
  EXPECT_THAT(refused.err, HasSubstr("--tokenizer: is of texts"));
  EvalNamesItsOwnOptions();
  // A text that has changed is other data.
  folder_.Write("notes.jsonl", RowsForTest(200, 6));
  const Ran other = RunWeft(folder_, "run job.yaml");
  EXPECT_EQ(other.exit_code, 2) << other.out;
  EXPECT_THAT(other.err, HasSubstr("data.train"));
}

}  // namespace
}  // namespace weft
