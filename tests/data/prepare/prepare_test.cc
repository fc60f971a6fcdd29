#include "data/prepare/prepare.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/megatron_index.h"
#include "data/prepare/text_inputs.h"
#include "data/token_file.h"
#include "tests/data/prepare/small_tokenizer.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PrepareTest : public testing::Test {
 protected:
  PrepareRequest Request(const std::vector<std::string>& inputs, const std::string& output) {
    PrepareRequest request;
    std::vector<std::string> notes;
    const auto found = FindTextInputs(inputs, std::nullopt, &notes);
    EXPECT_TRUE(found.ok()) << found.status();
    if (found.ok()) request.inputs = *found;
    request.rules.after = {kEndOfTextForTest};
    request.place = {.output = folder_.At(output)};
    request.tokenizer = folder_.tokenizer();
    request.chunk_bytes = 1000;
    return request;
  }
  absl::Status Run(const PrepareRequest& request) { return Prepare(tokenizer_, request).status(); }
  bool IsThere(const std::string& name) { return std::filesystem::exists(folder_.At(name)); }

  TextFolder folder_;
  Tokenizer tokenizer_ = *Tokenizer::Open(folder_.tokenizer());
};

// The ids of each row, one after the other, by the plainest way.
std::vector<int32_t> PlainIds(const Tokenizer& tokenizer, const std::string& rows,
                              std::vector<int64_t>* lengths) {
  std::vector<int32_t> ids;
  for (const auto line : absl::StrSplit(rows, '\n', absl::SkipEmpty())) {
    const std::string text = nlohmann::json::parse(std::string(line))["text"];
    const auto own = tokenizer.Encode(text);
    ids.insert(ids.end(), own->begin(), own->end());
    ids.push_back(kEndOfTextForTest);
    lengths->push_back(std::ssize(*own) + 1);
  }
  return ids;
}

TEST_F(PrepareTest, WritesTheSameBytesWithAnyNumberOfThreads) {
  const std::string rows = RowsForTest(400, 1);
  const std::string path = folder_.Write("a.jsonl", rows);
  std::vector<int64_t> lengths;
  const std::vector<int32_t> ids = PlainIds(tokenizer_, rows, &lengths);
  std::string first;
  for (const int threads : {1, 2, 5}) {
    PrepareRequest request = Request({path}, absl::StrCat("out", threads));
    request.threads = threads;
    const auto result = Prepare(tokenizer_, request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->counts.documents, 400);
    EXPECT_EQ(result->counts.tokens, std::ssize(ids));
    const std::string bin = folder_.Read(absl::StrCat("out", threads, ".bin"));
    const std::string idx = folder_.Read(absl::StrCat("out", threads, ".idx"));
    if (threads == 1) first = bin + idx;
    EXPECT_EQ(bin + idx, first);
    ASSERT_EQ(bin.size(), 2 * ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      uint16_t id = 0;
      std::memcpy(&id, bin.data() + 2 * i, 2);
      ASSERT_EQ(id, ids[i]) << "token " << i;
    }
    const auto index = ReadMegatronIndex(idx, std::ssize(bin));
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ(index->documents, 400);
    EXPECT_FALSE(IsThere(absl::StrCat("out", threads, ".preparing")));
  }
}

TEST_F(PrepareTest, WritesFilesThatTrainingReads) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(50, 2));
  const struct {
    TokenOutput output;
    TokenFormat format;
    int64_t item_bytes;
  } cases[] = {{TokenOutput::kMegatron, TokenFormat::kMegatron, 2},
               {TokenOutput::kMegatron, TokenFormat::kMegatron, 4},
               {TokenOutput::kNanogpt, TokenFormat::kNanogpt, 2},
               {TokenOutput::kNanogpt, TokenFormat::kNanogpt, 4},
               {TokenOutput::kLlmc, TokenFormat::kLlmc, 2},
               {TokenOutput::kLlmc, TokenFormat::kLlmc, 4}};
  for (const auto& c : cases) {
    PrepareRequest request = Request({path}, "out");
    request.place.format = c.output;
    request.place.item_bytes = request.rules.item_bytes = c.item_bytes;
    request.place.may_replace = true;
    const auto result = Prepare(tokenizer_, request);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto file =
        TokenFile::Open(folder_.At("out.bin"),
                        {.format = c.format,
                         .dtype = c.item_bytes == 2 ? TokenDtype::kUint16 : TokenDtype::kUint32,
                         .vocab_size = 259});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->tokens(), result->counts.tokens);
    std::vector<int32_t> last(1);
    (*file)->Read((*file)->tokens() - 1, absl::MakeSpan(last));
    EXPECT_EQ(last[0], kEndOfTextForTest);
    EXPECT_EQ(IsThere("out.idx"), c.output == TokenOutput::kMegatron);
  }
}

TEST_F(PrepareTest, SaysWhereAnIndexDoesNotFit) {
  ASSERT_TRUE(Run(Request({folder_.Write("a.jsonl", RowsForTest(5, 11))}, "out")).ok());
  const auto why = [&] {
    const auto file = TokenFile::Open(folder_.At("out.bin"), {.format = TokenFormat::kMegatron});
    return std::string(file.status().message());
  };
  EXPECT_EQ(why(), "");
  const std::string idx = folder_.Read("out.idx");
  std::string bent = idx;
  ++bent[34 + 5 * 4 + 2 * 8];
  folder_.Write("out.idx", bent);
  EXPECT_THAT(why(), HasSubstr("out.idx: pointer of sequence 2: found "));
  folder_.Write("out.idx", "");
  EXPECT_THAT(why(), HasSubstr("out.idx: the file is empty, expected an .idx of Megatron-LM"));
  std::filesystem::remove(folder_.At("out.idx"));
  EXPECT_THAT(why(), HasSubstr("out.idx: cannot open"));
}

TEST_F(PrepareTest, KnowsDoneWorkAndOverwritesNothingElse) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(20, 3));
  ASSERT_TRUE(Run(Request({path}, "out")).ok());
  const auto again = Prepare(tokenizer_, Request({path}, "out"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(again->counts.documents, 20);
  PrepareRequest other = Request({path}, "out");
  other.rules.text_key = "content";
  EXPECT_TRUE(absl::IsAlreadyExists(Run(other)));
  folder_.Write("a.jsonl", RowsForTest(20, 4) + "\n");
  EXPECT_TRUE(absl::IsAlreadyExists(Run(Request({path}, "out"))));
  folder_.Write("theirs.bin", "somebody's");
  EXPECT_TRUE(absl::IsAlreadyExists(Run(Request({path}, "theirs"))));
  EXPECT_EQ(folder_.Read("theirs.bin"), "somebody's");
  PrepareRequest forced = Request({path}, "theirs");
  forced.place.may_replace = true;
  EXPECT_TRUE(Run(forced).ok());
  EXPECT_NE(folder_.Read("theirs.bin"), "somebody's");
}

TEST_F(PrepareTest, CountsDocumentsAgainstASequence) {
  const std::string path =
      folder_.Write("a.jsonl", "{\"text\":\"ABC\"}\n{\"text\":\"ABCDEFGHI\"}\n{\"text\":\"\"}\n");
  PrepareRequest request = Request({path}, "out");
  request.place.seq_len = 5;
  const auto result = Prepare(tokenizer_, request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->counts, (PrepareCounts{.documents = 2,
                                           .tokens = 14,
                                           .text_bytes = 12,
                                           .empty = 1,
                                           .shortest = 4,
                                           .longest = 10,
                                           .cut_documents = 1,
                                           .cut_tokens = 5}));
}

TEST_F(PrepareTest, EndsWithOneBadRowTooMany) {
  const std::string path = folder_.Write(
      "a.jsonl", RowsForTest(30, 5) + "{\"txt\": 1}\n" + RowsForTest(30, 6) + "[]\n{}\n");
  const absl::Status first = Run(Request({path}, "out"));
  EXPECT_TRUE(absl::IsInvalidArgument(first));
  EXPECT_THAT(std::string(first.message()), HasSubstr("a.jsonl:31: found the keys txt"));
  EXPECT_THAT(std::string(first.message()), HasSubstr("; mend it"));
  PrepareRequest request = Request({path}, "out");
  std::vector<std::string> told;
  request.on_bad_row = [&](const std::string& where, const std::string&) {
    told.push_back(std::filesystem::path(where).filename());
  };
  request.most_bad_rows = 2;
  EXPECT_THAT(std::string(Run(request).message()), HasSubstr("a.jsonl:63: found an empty object"));
  request.most_bad_rows = 3;
  const auto result = Prepare(tokenizer_, request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->counts.bad_rows, 3);
  EXPECT_EQ(result->counts.documents, 60);
  EXPECT_THAT(told, testing::Contains("a.jsonl:31"));
}

// Text of more than two parts, of which no two lines are alike.
std::string LongText(const std::string& word) {
  std::string text;
  for (int line = 0; text.size() < (size_t{5} << 19); ++line) {
    absl::StrAppend(&text, word, " line ", line, "\n");
  }
  return text;
}

TEST_F(PrepareTest, LeavesOutAllOfATextWithABadPart) {
  const std::string first = folder_.Write("a.txt", "the first"), last = folder_.Write("c.txt", "x");
  for (const size_t bad_at : {size_t{100}, size_t{2'200'000}}) {
    std::string text = LongText("some");
    text[bad_at] = text[bad_at + 100] = '\xFF';
    const std::string spoilt = folder_.Write("b.txt", text);
    PrepareRequest request = Request({first, spoilt, last}, "out");
    request.place.may_replace = true;
    request.commit_bytes = 0;
    request.most_bad_rows = 1;
    const auto result = Prepare(tokenizer_, request);
    ASSERT_TRUE(result.ok()) << result.status();
    const std::string bin = folder_.Read("out.bin"), idx = folder_.Read("out.idx");
    request = Request({first, last}, "out");
    request.place.may_replace = true;
    const auto without = Prepare(tokenizer_, request);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(result->counts.bad_rows, 1) << bad_at;
    EXPECT_EQ(result->counts.documents, 2);
    EXPECT_EQ(result->counts.text_bytes, without->counts.text_bytes);
    EXPECT_EQ(bin, folder_.Read("out.bin"));
    EXPECT_EQ(idx, folder_.Read("out.idx"));
  }
}

TEST_F(PrepareTest, DoesNotWaitForAPipeToSayWhatIsWrong) {
  ASSERT_EQ(mkfifo(folder_.At("pipe.jsonl").c_str(), 0600), 0);
  std::atomic<bool> is_told{false};
  const std::jthread writer([&] {
    const int fd = open(folder_.At("pipe.jsonl").c_str(), O_WRONLY);
    const std::string rows = "{\"txt\": 1}\n" + RowsForTest(100, 1);
    ASSERT_EQ(write(fd, rows.data(), rows.size()), std::ssize(rows));
    for (int i = 0; i < 1000 && !is_told; ++i) usleep(10'000);
    close(fd);
  });
  PrepareRequest request = Request({folder_.At("pipe.jsonl")}, "out");
  request.threads = 2;
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = Run(request);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  is_told = true;
  EXPECT_THAT(std::string(status.message()), HasSubstr("pipe.jsonl:1: found the keys txt"));
}

TEST_F(PrepareTest, RefusesTextsWithoutADocument) {
  const absl::Status status =
      Run(Request({folder_.Write("a.jsonl", "\n\n{\"text\": \"\"}\n")}, "out"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(": no document was found, but 1"));
  EXPECT_FALSE(IsThere("out.bin"));
}

TEST_F(PrepareTest, LetsOneProcessWorkAtATime) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(20, 7));
  const PrepareRequest request = Request({path}, "out");
  const auto held = PreparedFiles::Open(request.place, "other", "");
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(absl::IsUnavailable(Run(request)));
}

TEST_F(PrepareTest, DoesNotTakeAnotherStreamForWhatIsDone) {
  ASSERT_EQ(mkfifo(folder_.At("pipe.jsonl").c_str(), 0600), 0);
  const auto run = [&](unsigned seed, bool force) {
    const std::jthread writer([&, seed] { folder_.Write("pipe.jsonl", RowsForTest(20, seed)); });
    PrepareRequest request = Request({folder_.At("pipe.jsonl")}, "out");
    request.place.may_replace = request.place.begin_anew = force;
    const absl::Status status = Run(request);
    // Who was not read by the work is read here, so that the writer ends.
    if (!status.ok()) folder_.Read("pipe.jsonl");
    return status;
  };
  ASSERT_TRUE(run(1, false).ok());
  const std::string first = folder_.Read("out.bin");
  const absl::Status other = run(2, false);
  EXPECT_TRUE(absl::IsAlreadyExists(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("out: is of a stream that was read before"));
  EXPECT_EQ(folder_.Read("out.bin"), first);
  EXPECT_TRUE(run(2, true).ok());
  EXPECT_NE(folder_.Read("out.bin"), first);
}

TEST_F(PrepareTest, ThrowsAwayWhatIsOfATextThatChangesMeanwhile) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(300, 1));
  const std::string same_size = RowsForTest(300, 1);
  PrepareRequest request = Request({path}, "out");
  request.commit_bytes = 0;
  int told = 0;
  request.on_progress = [&](const PrepareProgress&) {
    if (told++ == 0) folder_.Write("a.jsonl", same_size);
  };
  const absl::Status status = Run(request);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a.jsonl: was written to while it was tokenised"));
  EXPECT_FALSE(IsThere("out.bin"));
  EXPECT_FALSE(IsThere("out.preparing"));
  EXPECT_TRUE(Run(Request({path}, "out")).ok());
}

// Work has a name of its own, as in the cache; it was left by a run on other bytes.
TEST_F(PrepareTest, BeginsAnewWhereTheTextIsAnotherThanThatOfTheWorkThatWasLeft) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(300, 8));
  PrepareRequest request = Request({path}, "out");
  request.work = "named";
  {
    const auto left = PreparedFiles::Open(request.place, "named", "of other bytes");
    ASSERT_TRUE(left.ok()) << left.status();
    EncodedChunk chunk;
    chunk.ids = std::string(200, 'a');
    chunk.lengths = {100};
    chunk.after = {.byte = 0, .line = 2};
    ASSERT_TRUE((*left)->Append(chunk).ok() && (*left)->Commit().ok());
  }
  const auto result = Prepare(tokenizer_, request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->documents_before, 0);
  ASSERT_TRUE(Run(Request({path}, "whole")).ok());
  EXPECT_TRUE(folder_.Read("out.bin") == folder_.Read("whole.bin"));
}

TEST_F(PrepareTest, BeginsAnewWhenItIsTold) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(300, 8));
  ASSERT_TRUE(Run(Request({path}, "whole")).ok());
  std::atomic<bool> stop{true};
  PrepareRequest request = Request({path}, "out");
  request.stop = &stop;
  EXPECT_TRUE(absl::IsCancelled(Run(request)));
  // A disk that has lost bytes: the state says more than is there.
  std::string state = folder_.Read("out.preparing/state.json");
  state.replace(state.find("\"byte\":0"), 8, "\"byte\":9");
  state.replace(state.find("\"tokens\":0"), 10, "\"tokens\":9");
  folder_.Write("out.preparing/state.json", state);
  stop = false;
  EXPECT_TRUE(absl::IsDataLoss(Run(request)));
  request.place.begin_anew = true;
  EXPECT_TRUE(Run(request).ok());
  EXPECT_EQ(folder_.Read("out.bin"), folder_.Read("whole.bin"));
}

TEST_F(PrepareTest, PutsNothingInPlaceThatOtherWorkHasLeft) {
  PrepareRequest request = Request({folder_.Write("a.jsonl", RowsForTest(20, 8))}, "out");
  std::filesystem::create_directory(folder_.At("out.preparing"));
  folder_.Write("out.preparing/index", "of other work");
  request.place.format = TokenOutput::kNanogpt;
  EXPECT_TRUE(Run(request).ok());
  EXPECT_TRUE(IsThere("out.bin"));
  EXPECT_FALSE(IsThere("out.idx"));
}

TEST_F(PrepareTest, DoesNotReplaceWhatCameMeanwhile) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(300, 8));
  std::atomic<bool> stop{true};
  PrepareRequest request = Request({path}, "out");
  request.stop = &stop;
  EXPECT_TRUE(absl::IsCancelled(Run(request)));
  folder_.Write("out.bin", "somebody's");
  stop = false;
  EXPECT_TRUE(absl::IsAlreadyExists(Run(request)));
  EXPECT_EQ(folder_.Read("out.bin"), "somebody's");
  // Work that was begun with that leave has it when it goes on.
  request.place.may_replace = true;
  stop = true;
  EXPECT_TRUE(absl::IsCancelled(Run(request)));
  request.place.may_replace = false;
  stop = false;
  EXPECT_TRUE(Run(request).ok());
}

TEST_F(PrepareTest, FollowsNoLinkThatAnotherMayHavePut) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(20, 8));
  std::filesystem::create_directory(folder_.At("elsewhere"));
  std::filesystem::create_directory_symlink(folder_.At("elsewhere"), folder_.At("out.preparing"));
  const absl::Status linked = Run(Request({path}, "out"));
  EXPECT_TRUE(absl::IsPermissionDenied(linked)) << linked;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.At("elsewhere")));
  std::filesystem::remove(folder_.At("out.preparing"));
  std::filesystem::create_directory(folder_.At("out.preparing"));
  folder_.Write("theirs", "theirs");
  std::filesystem::create_symlink(folder_.At("theirs"), folder_.At("out.preparing/tokens"));
  EXPECT_FALSE(Run(Request({path}, "out")).ok());
  EXPECT_EQ(folder_.Read("theirs"), "theirs");
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  std::filesystem::remove_all(folder_.At("out.preparing"));
  std::filesystem::create_directory(folder_.At("out.preparing"));
  ASSERT_EQ(chown(folder_.At("out.preparing").c_str(), 1234, 1234), 0);
  const absl::Status others = Run(Request({path}, "out"));
  EXPECT_THAT(std::string(others.message()), HasSubstr("out.preparing: is of the user 1234"));
}

TEST_F(PrepareTest, CommitsNothingAfterAnErrorOfTheDisk) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(300, 8));
  const PrepareRequest request = Request({path}, "out");
  const auto files = PreparedFiles::Open(request.place, "work", "");
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string before = folder_.Read("out.preparing/state.json");
  EncodedChunk chunk;
  chunk.ids = std::string(200, 'a');
  chunk.lengths = {100};
  chunk.after = {.byte = 10};
  rlimit old = {};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 100, .rlim_max = old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status full = (*files)->Append(chunk);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_EQ((*files)->state().counts.documents, 0);
  EXPECT_TRUE((*files)->Commit().ok());
  EXPECT_EQ(folder_.Read("out.preparing/state.json"), before);
}

TEST_F(PrepareTest, StopsAndGoesOn) {
  const std::string path = folder_.Write("a.jsonl", RowsForTest(300, 8));
  ASSERT_TRUE(Run(Request({path}, "whole")).ok());
  std::atomic<bool> stop{true};
  PrepareRequest request = Request({path}, "out");
  request.stop = &stop;
  EXPECT_TRUE(absl::IsCancelled(Run(request)));
  stop = false;
  EXPECT_TRUE(Run(request).ok());
  EXPECT_EQ(folder_.Read("out.bin"), folder_.Read("whole.bin"));
}

// A process is killed at 20 points, of which each is come to after what was resumed before.
TEST_F(PrepareTest, GoesOnAfterAKillAtAnyPointWithTheSameBytes) {
  const std::string rows = RowsForTest(200, 9), more = RowsForTest(100, 10);
  const std::string inputs =
      absl::StrCat(folder_.Write("a.jsonl", rows), " ", folder_.Write("b.jsonl.gz", Gzipped(more)),
                   " ", folder_.Write("c.jsonl.zst", Zstandard(rows)));
  const auto run = [&](const std::string& output, const std::string& failpoint) {
    const std::string token = folder_.Write("token", "");
    return std::system(
        absl::StrCat(failpoint.empty() ? "" : "WEFT_FAILPOINT=" + failpoint + ":" + token, " ",
                     BinaryPath("/bin/prepare_side"), " ", folder_.tokenizer(), " ",
                     folder_.At(output), " 2 ", inputs)
            .c_str());
  };
  ASSERT_EQ(run("whole", ""), 0);
  const std::string bin = folder_.Read("whole.bin"), idx = folder_.Read("whole.idx");
  ASSERT_GT(bin.size(), 10000u);
  const std::vector<std::string> points = {
      "prepare.append:1",    "prepare.append:2",    "prepare.append:9",     "prepare.append:20",
      "prepare.append:33",   "prepare.append:32",   "prepare.synced:1",     "prepare.synced:2",
      "prepare.synced:7",    "prepare.synced:24",   "prepare.synced:34",    "prepare.committed:1",
      "prepare.committed:3", "prepare.committed:8", "prepare.committed:30", "prepare.committed:33",
      "prepare.publish:1",   "prepare.publish:2",   "prepare.publish:3",    "prepare.published:1"};
  ASSERT_EQ(points.size(), 20u);
  for (const std::string& point : points) {
    EXPECT_NE(run("out", point), 0) << point << " was not come to";
    if (point != "prepare.published:1" && point != "prepare.publish:3") {
      EXPECT_FALSE(IsThere("out.idx")) << point;
    }
    EXPECT_EQ(run("out", ""), 0) << point;
    EXPECT_EQ(folder_.Read("out.bin"), bin) << point;
    EXPECT_EQ(folder_.Read("out.idx"), idx) << point;
    EXPECT_FALSE(IsThere("out.preparing")) << point;
    for (const char* ending : {".bin", ".idx", ".prepared.json"}) {
      std::filesystem::remove(folder_.At(absl::StrCat("out", ending)));
    }
  }
  // And again and again in the middle of the same work.
  int kills = 0;
  while (run("often", absl::StrCat("prepare.synced:", 4 + kills % 3)) != 0 && kills < 100) ++kills;
  EXPECT_GT(kills, 5);
  EXPECT_EQ(folder_.Read("often.bin"), bin);
  EXPECT_EQ(folder_.Read("often.idx"), idx);
}

TEST(PrepareStateText, ReadsBack) {
  PrepareState state;
  state.work = "abc";
  state.stamp = "def";
  state.may_replace = true;
  state.next = {.input = 2, .byte = int64_t{1} << 40, .line = 7, .hash = ~uint64_t{0}};
  state.open_tokens = 3;
  state.counts.Add(10, 4);
  state.is_complete = true;
  const auto read = ParseState(StateText(state));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, state);
  for (const char* text : {"", "{}", "[]", "{\"version\":1}", "{\"version\":2}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseState(text).status())) << text;
  }
  std::string negative = StateText(state);
  negative.replace(negative.find("\"byte\":") + 7, 1, "-1");
  EXPECT_TRUE(absl::IsInvalidArgument(ParseState(negative).status()));
}

TEST(TextInputs, AreFilesOfFoldersInTheOrderOfTheirNames) {
  const TextFolder folder;
  std::filesystem::create_directories(folder.At("d/sub"));
  std::filesystem::create_directories(folder.At("d/.git"));
  folder.Write("d/b.jsonl", "{}");
  folder.Write("d/a.txt", "a");
  folder.Write("d/sub/c.jsonl.gz", Gzipped("{}"));
  folder.Write("d/picture.png", "x");
  folder.Write("d/.git/x.txt", "x");
  folder.Write("d/new\nline.txt", "x");
  std::filesystem::create_directory_symlink(folder.At("d"), folder.At("d/sub/loop"));
  std::vector<std::string> notes;
  const auto found = FindTextInputs({folder.At("d")}, std::nullopt, &notes);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<std::string> paths;
  for (const TextInput& input : *found) paths.push_back(input.path.substr(folder.At("d").size()));
  EXPECT_THAT(paths, ElementsAre("/a.txt", "/b.jsonl", "/new\nline.txt", "/sub/c.jsonl.gz"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("1 file is passed over"));
}

TEST(TextInputs, AreRefusedByName) {
  const TextFolder folder;
  folder.Write("a.parquet", "PAR1");
  folder.Write("b.txt", "PAR1x");
  folder.Write("c.jsonl", "{}");
  folder.Write("utf16.txt",
               "\xFF\xFE"
               "a");
  std::filesystem::create_directory(folder.At("empty"));
  std::filesystem::create_directory(folder.At("tables"));
  folder.Write("tables/x.parquet", "PAR1");
  std::filesystem::create_symlink("loop.txt", folder.At("loop.txt"));
  const struct {
    std::vector<std::string> named;
    const char* says;
  } cases[] = {
      {{folder.At("a.parquet")}, "a.parquet: is a Parquet file"},
      {{folder.At("b.txt")}, "b.txt: is a Parquet file"},
      {{folder.At("utf16.txt")}, "utf16.txt: is UTF-16"},
      {{folder.At("tables")}, "x.parquet: is a Parquet file"},
      {{folder.At("empty")}, "empty: holds no file"},
      {{folder.At("none.txt")}, "none.txt: no such file"},
      {{folder.At("*.csv")}, "*.csv: matches no file"},
      {{folder.At("c.jsonl"), folder.At("c.jsonl")}, "c.jsonl: is named twice"},
      {{folder.At("loop.txt")}, "loop.txt: no such file"},
      {{"-", folder.At("c.jsonl")}, "-: is standard input; name it alone"},
      {{"/dev/zero"}, "/dev/zero: has a name that does not say"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> notes;
    const auto found = FindTextInputs(c.named, std::nullopt, &notes);
    EXPECT_FALSE(found.ok()) << c.says;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace weft
