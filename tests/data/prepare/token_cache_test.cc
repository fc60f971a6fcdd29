// The cache of tokens: who may have put a file there that is taken, and what is left of work that
// fails.
#include "data/prepare/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/data/prepare/small_tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

constexpr uid_t kAnn = 1001, kBob = 1002;
constexpr gid_t kTeam = 5678;

class TokenCacheTest : public testing::Test {
 protected:
  TokenCacheTest() {
    EXPECT_EQ(chmod(files_.At("").c_str(), 0755), 0);
    request_.folder = cache_;
    request_.rules = {.tokenizer = files_.tokenizer(), .bos = {}, .eos = {}};
    request_.on_progress = [this](const PrepareProgress& now) {
      if (now.is_over) ++worked_;
      if (!now.waits.empty()) waits_.push_back(now.waits);
    };
  }
  absl::StatusOr<std::optional<CachedTokens>> Find(const std::string& path) {
    return TokenCache(request_).Find({.path = path, .format = *FormatOfName(path)});
  }
  absl::StatusOr<CachedTokens> Make(const std::string& path) {
    const NamedText text = {.path = path, .format = *FormatOfName(path)};
    TokenCache cache(request_);
    const auto found = cache.Find(text);
    if (!found.ok()) return found.status();
    if (*found) return **found;
    return cache.Make(text);
  }
  // Runs `work` as another user of the group.
  template <typename Work>
  void As(uid_t user, const Work& work) {
    ASSERT_EQ(setegid(kTeam), 0);
    ASSERT_EQ(seteuid(user), 0);
    work();
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_EQ(setegid(0), 0);
  }
  void ShareFolder() {
    fs::create_directories(cache_);
    ASSERT_EQ(chown(cache_.c_str(), 0, kTeam), 0);
    ASSERT_EQ(chmod(cache_.c_str(), 0770), 0);
  }
  std::vector<int> Ids(const CachedTokens& tokens) {
    std::ifstream file(tokens.path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<int> ids;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      ids.push_back(static_cast<uint8_t>(bytes[i]) + 256 * static_cast<uint8_t>(bytes[i + 1]));
    }
    return ids;
  }
  bool IsWorkLeft() {
    for (const auto& entry : fs::directory_iterator(cache_)) {
      if (entry.path().extension() == ".preparing") return true;
    }
    return false;
  }
  // The message of a cache that does not take the file, and does not replace it.
  std::string Refusal(const std::string& text) {
    const auto found = Find(text);
    EXPECT_TRUE(found.ok() && !*found) << found.status();
    return std::string(Make(text).status().message());
  }

  TextFolder files_;
  const std::string cache_ = files_.At("cache");
  const std::string rows_ = files_.Write("rows.jsonl", RowsForTest(50, 1));
  CacheRequest request_;
  int worked_ = 0;
  std::vector<std::string> waits_;
};

TEST_F(TokenCacheTest, KeepsTheEndOfTheTokenizerThatIsNotStated) {
  nlohmann::json json = nlohmann::json::parse(files_.Read("tokenizer.json"));
  nlohmann::json begin = json["added_tokens"][0];
  begin["id"] = 259;
  begin["content"] = "<s>";
  json["added_tokens"].push_back(begin);
  const nlohmann::json token = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const auto text = [](const char* id) {
    return nlohmann::json{{"Sequence", {{"id", id}, {"type_id", 0}}}};
  };
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {token, text("A")}},
      {"pair", {token, text("A"), token, text("B")}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {259}}, {"tokens", {"<s>"}}}}}}};
  files_.Write("tokenizer.json", json.dump());
  const std::string path = files_.Write("a.txt", "abc");
  request_.rules.eos = 10;
  const auto with_end = Make(path);
  ASSERT_TRUE(with_end.ok()) << with_end.status();
  EXPECT_EQ(Ids(*with_end).front(), 259);
  EXPECT_EQ(Ids(*with_end).back(), 10);
  request_.rules = {.tokenizer = files_.tokenizer(), .bos = 11, .eos = {}};
  const auto with_begin = Make(path);
  ASSERT_TRUE(with_begin.ok()) << with_begin.status();
  EXPECT_EQ(Ids(*with_begin).front(), 11);
  EXPECT_EQ(Ids(*with_begin).back(), kEndOfTextForTest);
}

TEST_F(TokenCacheTest, NamesWhatTheOneWhoAsksCanChange) {
  request_.words = {.end = "the run's end", .end_cure = "do this", .id_cure = "do that"};
  request_.rules.eos = 300;
  EXPECT_EQ(Make(rows_).status().message(),
            "the run's end: the tokenizer has no token 300; do that");
  std::string text = files_.Read("tokenizer.json");
  text.replace(text.find("<|endoftext|>"), 13, "<|otherwise|>");
  files_.Write("tokenizer.json", text);
  request_.rules.eos.reset();
  EXPECT_EQ(Make(rows_).status().message(), "the tokenizer states no end of text; do this");
}

TEST_F(TokenCacheTest, KeepsNothingOfADamagedText) {
  const std::string whole = Gzipped(RowsForTest(3000, 1));
  const std::string path = files_.Write("cut.jsonl.gz", whole.substr(0, whole.size() - 20));
  const auto made = Make(path);
  EXPECT_THAT(std::string(made.status().message()),
              AllOf(HasSubstr("cut.jsonl.gz: "), HasSubstr("fetch or pack it again")));
  EXPECT_EQ(worked_, 1);
  EXPECT_FALSE(IsWorkLeft());
}

TEST_F(TokenCacheTest, NamesATextWithoutDocumentsAndKeepsNothingOfIt) {
  const auto made = Make(files_.Write("nothing.jsonl", "\n\n"));
  EXPECT_THAT(std::string(made.status().message()), HasSubstr(files_.At("nothing.jsonl: ")));
  EXPECT_FALSE(IsWorkLeft());
}

TEST_F(TokenCacheTest, WritesFilesThatNobodyElseMayChange) {
  const mode_t before = umask(0);
  const auto made = Make(rows_);
  umask(before);
  ASSERT_TRUE(made.ok()) << made.status();
  struct stat info = {};
  ASSERT_EQ(stat(made->path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 022, 0u);
  ASSERT_TRUE(Make(rows_).ok());
  EXPECT_EQ(worked_, 1);
}

TEST_F(TokenCacheTest, SaysWhyAFileIsNotTaken) {
  const auto made = Make(rows_);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string& bin = made->path;
  ASSERT_EQ(chmod(bin.c_str(), 0646), 0);
  EXPECT_THAT(Refusal(rows_), AllOf(HasSubstr(absl::StrCat(bin, ": everybody may write to it")),
                                    HasSubstr("remove it")));
  ASSERT_EQ(chmod(bin.c_str(), 0664), 0);
  ASSERT_EQ(chmod(cache_.c_str(), 0755), 0);
  EXPECT_THAT(Refusal(rows_),
              HasSubstr(absl::StrCat(bin, ": its group ", getegid(), " may write to it")));
  ASSERT_EQ(chmod(bin.c_str(), 0644), 0);
  fs::rename(bin, cache_ + "/moved");
  fs::create_symlink(cache_ + "/moved", bin);
  EXPECT_THAT(Refusal(rows_),
              AllOf(HasSubstr(absl::StrCat(bin, ": is a link")), HasSubstr("remove it")));
  // The cure works.
  fs::remove(bin);
  const auto again = Make(rows_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->path, bin);
}

TEST_F(TokenCacheTest, TakesNoFileOfAnotherUserInAFolderOfItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  const auto made = Make(rows_);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string& bin = made->path;
  ASSERT_EQ(chmod(cache_.c_str(), 0755), 0);
  ASSERT_EQ(chown(bin.c_str(), kAnn, 0), 0);
  EXPECT_THAT(Refusal(rows_), HasSubstr(absl::StrCat(bin, ": is of the user 1001")));
  // Nor one where a group may write that this user is not in.
  ASSERT_EQ(chown(cache_.c_str(), 0, kTeam), 0);
  ASSERT_EQ(chmod(cache_.c_str(), 0775), 0);
  ASSERT_EQ(chown(bin.c_str(), kAnn, kTeam), 0);
  EXPECT_THAT(Refusal(rows_), HasSubstr(absl::StrCat(bin, ": is of the user 1001")));
  // Root takes what is the folder's owner's.
  ASSERT_EQ(chown(cache_.c_str(), kAnn, kTeam), 0);
  ASSERT_EQ(chmod(cache_.c_str(), 0755), 0);
  const auto found = Find(rows_);
  EXPECT_TRUE(found.ok() && *found);
}

TEST_F(TokenCacheTest, TakesTheFilesOfAGroupWhereItSharesTheFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  ShareFolder();
  As(kAnn, [&] {
    const mode_t before = umask(077);
    const auto made = Make(rows_);
    umask(before);
    ASSERT_TRUE(made.ok()) << made.status();
  });
  As(kBob, [&] {
    const auto made = Make(rows_);
    ASSERT_TRUE(made.ok()) << made.status();
  });
  EXPECT_EQ(worked_, 1);
}

TEST_F(TokenCacheTest, TakesNoFileOfAnotherGroupInASharedFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  ShareFolder();
  As(kAnn, [&] { ASSERT_TRUE(Make(rows_).ok()); });
  std::string bin;
  As(kBob, [&] { bin = Make(rows_)->path; });
  ASSERT_EQ(chown(bin.c_str(), kAnn, kAnn), 0);
  ASSERT_EQ(chmod(bin.c_str(), 0644), 0);
  As(kBob, [&] {
    EXPECT_THAT(Refusal(rows_),
                HasSubstr(absl::StrCat(bin, ": is of the user 1001 and of the group 1001")));
  });
  ASSERT_EQ(chown(bin.c_str(), kBob, kAnn), 0);
  ASSERT_EQ(chmod(bin.c_str(), 0664), 0);
  As(kBob, [&] {
    EXPECT_THAT(Refusal(rows_), HasSubstr(absl::StrCat(bin, ": its group 1001 may write to it")));
  });
  ASSERT_EQ(chown(bin.c_str(), kBob, kTeam), 0);
  As(kBob, [&] { EXPECT_TRUE(Make(rows_).ok()); });
  EXPECT_EQ(worked_, 1);
}

TEST_F(TokenCacheTest, ReplacesNoRecordThatItCannotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  ShareFolder();
  std::string bin;
  As(kAnn, [&] { bin = Make(rows_)->path; });
  const std::string record = bin.substr(0, bin.size() - 4) + ".prepared.json";
  ASSERT_EQ(chmod(record.c_str(), 0600), 0);
  As(kBob, [&] {
    EXPECT_THAT(Refusal(rows_),
                AllOf(HasSubstr(record), HasSubstr("of the user 1001"), HasSubstr("chmod g+r")));
  });
  struct stat info = {};
  ASSERT_EQ(stat(record.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kAnn);
  EXPECT_EQ(worked_, 1);
}

TEST_F(TokenCacheTest, WaitsForTheWorkOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  ShareFolder();
  const auto made = Make(rows_);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string output = made->path.substr(0, made->path.size() - 4);
  for (const char* ending : {".bin", ".prepared.json"}) fs::remove(output + ending);
  fs::create_directory(output + ".preparing");
  ASSERT_EQ(chown((output + ".preparing").c_str(), kAnn, kTeam), 0);
  ASSERT_EQ(chmod((output + ".preparing").c_str(), 0700), 0);
  std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    fs::remove(output + ".preparing");
  });
  As(kBob, [&] {
    const auto again = Make(rows_);
    EXPECT_TRUE(again.ok()) << again.status();
  });
  ends.join();
  EXPECT_THAT(waits_, ElementsAre(output + ".preparing: the user 1001 is preparing it"));
  // Work that does not change is that user's to end.
  for (const char* ending : {".bin", ".prepared.json"}) fs::remove(output + ending);
  fs::create_directory(output + ".preparing");
  ASSERT_EQ(chown((output + ".preparing").c_str(), kAnn, kTeam), 0);
  request_.most_idle = std::chrono::milliseconds(300);
  As(kBob, [&] {
    EXPECT_THAT(std::string(Make(rows_).status().message()),
                AllOf(HasSubstr(output + ".preparing: is of the user 1001, expected 1002"),
                      HasSubstr("let that user go on with it or remove it, or name another folder "
                                "with data.cache")));
  });
}

TEST_F(TokenCacheTest, DoesNotWaitWhereItMayNotWrite) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  fs::create_directory(cache_);
  ASSERT_EQ(chmod(cache_.c_str(), 0755), 0);
  std::atomic<bool> stop{false};
  std::atomic<bool> is_over{false};
  request_.stop = &stop;
  std::jthread ends([&] {
    for (int i = 0; i < 1000 && !is_over; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    stop = true;
  });
  As(kAnn, [&] {
    EXPECT_THAT(std::string(Make(rows_).status().message()),
                HasSubstr(".preparing: cannot be made"));
  });
  EXPECT_FALSE(stop);
  is_over = true;
}

TEST_F(TokenCacheTest, SaysForWhomItWaits) {
  const std::string text = files_.Write("many.jsonl", RowsForTest(2000, 1));
  std::jthread other;
  CacheRequest waits = request_;
  std::vector<std::string> told;
  std::atomic<bool> is_told{false};
  waits.on_progress = [&](const PrepareProgress& now) {
    if (now.waits.empty()) return;
    told.push_back(now.waits);
    is_told = true;
  };
  bool is_begun = false;
  request_.on_progress = [&](const PrepareProgress& now) {
    if (!now.is_over || std::exchange(is_begun, true)) return;
    other = std::jthread([&] {
      TokenCache cache(waits);
      EXPECT_TRUE(cache.Make({.path = text}).ok());
    });
    for (int i = 0; i < 2000 && !is_told; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  ASSERT_TRUE(Make(text).ok());
  other.join();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], AllOf(HasSubstr(cache_ + "/many.jsonl-"),
                             HasSubstr(absl::StrCat("another process (", getpid(), " on ")),
                             EndsWith(" is preparing it")));
}

TEST_F(TokenCacheTest, TakesNoFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "none but root makes files of another user";
  constexpr gid_t kOthers = 4321;
  fs::create_directory(cache_);
  for (const auto& [group, mode] : {std::pair(kTeam, 0755), std::pair(kOthers, 0775)}) {
    ASSERT_EQ(chown(cache_.c_str(), kAnn, group), 0);
    ASSERT_EQ(chmod(cache_.c_str(), static_cast<mode_t>(mode)), 0);
    As(kBob, [&] {
      EXPECT_THAT(std::string(Make(rows_).status().message()),
                  HasSubstr(cache_ + ": is of the user 1001, who could give any tokens"));
    });
  }
}

TEST_F(TokenCacheTest, SaysWhatHasToBeDoneWithAFolderThatEverybodyWritesTo) {
  fs::create_directory(cache_);
  ASSERT_EQ(chmod(cache_.c_str(), 0777), 0);
  EXPECT_THAT(std::string(Make(rows_).status().message()),
              AllOf(HasSubstr("chmod o-w"), HasSubstr("remove what is in it")));
}

}  // namespace
}  // namespace weft
