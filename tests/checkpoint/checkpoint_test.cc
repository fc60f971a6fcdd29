#include "checkpoint/checkpoint.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/durable_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

constexpr char kRun[] = "0123456789abcdef";

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = ::testing::TempDir() + "weft_checkpoint_XXXXXX";
    root_ = mkdtemp(pattern.data());
    folder_ = root_ + "/run/checkpoint";
  }
  ~CheckpointTest() override { fs::remove_all(root_); }

  // Two shards of a [4, 6] tensor, whose values tell the step, staged and committed.
  void Save(int64_t step, int64_t generation = 1) {
    Manifest manifest = Stage(step, generation);
    const absl::Status committed = CommitCheckpoint(folder_, manifest);
    ASSERT_TRUE(committed.ok()) << committed;
  }

  Manifest Stage(int64_t step, int64_t generation) {
    Manifest manifest;
    manifest.run_id = kRun;
    manifest.run_folder = "/runs/a \"quoted\"";
    manifest.step = step;
    manifest.generation = generation;
    manifest.next_sample = step * 8;
    manifest.weft_version = "0.1.0";
    manifest.layout = "dp=2 \"quoted\"";
    manifest.facts = {{"seed", "42"}, {"data /a b", "12:34"}};
    const std::vector<float> values(12, static_cast<float>(step * 10 + generation));
    for (int rank = 0; rank < 2; ++rank) {
      const int64_t row = rank == 0 ? 0 : 2;
      const BoxToSave box{"w", {4, 6}, {row, 0}, {row + 2, 6}, values};
      const auto shard = WriteShard(StageFolder(folder_, kRun, generation, step), rank, {{box}});
      EXPECT_TRUE(shard.ok()) << shard.status();
      if (shard.ok()) manifest.shards.push_back(*shard);
    }
    return manifest;
  }

  FoundCheckpoint Newest() {
    auto found = NewestCheckpoint(folder_);
    EXPECT_TRUE(found.ok()) << found.status();
    return *std::move(found);
  }

  // The value of every element of "w", which must all be the same.
  float ValueOf(const FoundCheckpoint& found) {
    const auto reader = CheckpointReader::Open(found.path, found.manifest);
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<float> values(24, -1);
    const absl::Status read = reader->Read("w", {4, 6}, {0, 0}, {4, 6}, absl::MakeSpan(values));
    EXPECT_TRUE(read.ok()) << read;
    EXPECT_EQ(std::count(values.begin(), values.end(), values[0]), 24);
    return values[0];
  }

  std::string root_;
  std::string folder_;
};

TEST_F(CheckpointTest, AMissingFolderHoldsNoCheckpoint) {
  const FoundCheckpoint found = Newest();
  EXPECT_EQ(found.path, "");
  EXPECT_THAT(found.refused, IsEmpty());
}

TEST_F(CheckpointTest, TheNewestIsFoundByNumberNotByName) {
  for (const int64_t step : {9, 100, 20}) Save(step);
  const FoundCheckpoint found = Newest();
  EXPECT_EQ(found.path, folder_ + "/step-100");
  EXPECT_EQ(ValueOf(found), 1001);
  EXPECT_THAT(NamesIn(folder_), ElementsAre("step-100", "step-20", "step-9"));
}

TEST_F(CheckpointTest, TheManifestSaysWhatWasCommitted) {
  Save(20, 3);
  const Manifest manifest = Newest().manifest;
  EXPECT_EQ(manifest.step, 20);
  EXPECT_EQ(manifest.generation, 3);
  EXPECT_EQ(manifest.next_sample, 160);
  EXPECT_EQ(manifest.weft_version, "0.1.0");
  EXPECT_EQ(manifest.layout, "dp=2 \"quoted\"");
  EXPECT_EQ(manifest.facts.at("data /a b"), "12:34");
  ASSERT_EQ(manifest.shards.size(), 2u);
  EXPECT_EQ(manifest.shards[1].file, "rank-00001.safetensors");
}

TEST_F(CheckpointTest, StagedShardsAreNoCheckpointUntilCommitted) {
  Save(10);
  const Manifest manifest = Stage(20, 1);
  EXPECT_EQ(Newest().path, folder_ + "/step-10");
  EXPECT_THAT(Newest().refused, IsEmpty()) << "a stage folder is not a refused checkpoint";
  ASSERT_TRUE(CommitCheckpoint(folder_, manifest).ok());
  EXPECT_EQ(Newest().path, folder_ + "/step-20");
  EXPECT_THAT(NamesIn(folder_), ElementsAre("step-10", "step-20"));
}

TEST_F(CheckpointTest, CommitRefusesWhatIsNotStaged) {
  Manifest manifest = Stage(20, 1);
  fs::resize_file(StageFolder(folder_, kRun, 1, 20) + "/rank-00001.safetensors", 10);
  absl::Status status = CommitCheckpoint(folder_, manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank-00001.safetensors: 10 bytes"));
  fs::remove(StageFolder(folder_, kRun, 1, 20) + "/rank-00001.safetensors");
  status = CommitCheckpoint(folder_, manifest);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank-00001.safetensors: missing"));
  EXPECT_EQ(Newest().path, "");
}

TEST_F(CheckpointTest, ALaterGenerationReplacesTheSameStep) {
  Save(20, 1);
  Save(20, 2);
  EXPECT_EQ(ValueOf(Newest()), 202);
  // The one before has no step's name any more; the clean-up takes it away.
  EXPECT_THAT(NamesIn(folder_), ElementsAre(StartsWith(".stage."), "step-20"));
}

TEST_F(CheckpointTest, ARefusedCheckpointIsReplacedWhenItsStepComesAgain) {
  Save(10);
  Save(20, 1);
  fs::resize_file(folder_ + "/step-20/rank-00000.safetensors", 7);
  EXPECT_EQ(Newest().path, folder_ + "/step-10");
  Save(20, 2);
  EXPECT_EQ(ValueOf(Newest()), 202);
}

TEST_F(CheckpointTest, AFolderWithoutManifestIsNoCheckpoint) {
  Save(10);
  Save(20);
  fs::remove(folder_ + "/step-20/manifest.json");
  const FoundCheckpoint found = Newest();
  EXPECT_EQ(found.path, folder_ + "/step-10");
  EXPECT_THAT(found.refused,
              ElementsAre("step-20: manifest.json: missing, so this is not a checkpoint"));
  EXPECT_EQ(VerifyCheckpoint(folder_ + "/step-20").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, EachDamageIsRefusedByNameAndThePreviousOneIsUsed) {
  Save(10);
  Save(20);
  const std::string shard = folder_ + "/step-20/rank-00001.safetensors";
  const std::string whole = ReadBytes(shard);
  const std::string bytes_text = std::to_string(whole.size());
  const auto refused = [&](const std::string& what) {
    const FoundCheckpoint found = Newest();
    EXPECT_EQ(found.path, folder_ + "/step-10") << what;
    ASSERT_EQ(found.refused.size(), 1u) << what;
    EXPECT_THAT(found.refused[0], StartsWith("step-20: rank-00001.safetensors: ")) << what;
    EXPECT_THAT(found.refused[0], HasSubstr(what));
  };
  WriteBytes(shard, whole.substr(0, 100));
  refused("100 bytes, manifest says " + bytes_text);
  WriteBytes(shard, whole + "x");
  refused(std::to_string(whole.size() + 1) + " bytes, manifest says " + bytes_text);
  WriteBytes(shard, std::string(whole.size(), '\0'));
  refused("xxh3 ");
  // A shard of another rank, of another step: right size, right format, wrong contents.
  WriteBytes(shard, ReadBytes(folder_ + "/step-20/rank-00000.safetensors"));
  refused("manifest says ");
  WriteBytes(shard, ReadBytes(folder_ + "/step-10/rank-00001.safetensors"));
  refused("manifest says ");
  fs::remove(shard);
  refused("missing, manifest says " + bytes_text);
  fs::create_directory(shard);
  refused("manifest says " + bytes_text);
  fs::remove(shard);
  WriteBytes(shard, whole);
  EXPECT_EQ(Newest().path, folder_ + "/step-20");
}

// However many threads look at them.
TEST_F(CheckpointTest, OfSeveralDamagedShardsTheFirstIsNamed) {
  Manifest manifest;
  manifest.run_id = kRun;
  manifest.step = 5;
  const std::vector<float> values(1000, 1);
  for (int rank = 0; rank < 21; ++rank) {
    const BoxToSave box{"w", {21, 1000}, {rank, 0}, {rank + 1, 1000}, values};
    const auto shard = WriteShard(StageFolder(folder_, kRun, 0, 5), rank, {{box}});
    ASSERT_TRUE(shard.ok()) << shard.status();
    manifest.shards.push_back(*shard);
  }
  ASSERT_TRUE(CommitCheckpoint(folder_, manifest).ok());
  const std::string step = folder_ + "/step-5";
  ASSERT_TRUE(VerifyCheckpoint(step).ok());
  for (const int rank : {20, 13, 9, 8}) {  // the last, and some of all streams
    const std::string path = step + "/" + ShardFileName(rank);
    std::string bytes = ReadBytes(path);
    bytes.back() ^= 1;
    WriteBytes(path, bytes);
    EXPECT_THAT(std::string(VerifyCheckpoint(step).status().message()),
                StartsWith(ShardFileName(rank) + ": xxh3 "));
  }
}

TEST_F(CheckpointTest, AManifestOfAnotherStepIsRefused) {
  Save(10);
  fs::rename(folder_ + "/step-10", folder_ + "/step-30");
  const FoundCheckpoint found = Newest();
  EXPECT_EQ(found.path, "");
  EXPECT_THAT(found.refused, ElementsAre("step-30: manifest.json: found step 10, expected 30 as "
                                         "its folder says"));
}

TEST_F(CheckpointTest, EveryBitFlipOfTheManifestIsRefused) {
  Save(10);
  Save(20);
  const std::string path = folder_ + "/step-20/manifest.json";
  const std::string whole = ReadBytes(path);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto manifest = ParseManifest(flipped);
    ASSERT_EQ(manifest.status().code(), absl::StatusCode::kDataLoss) << "bit " << bit;
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(ParseManifest(whole.substr(0, size)).ok()) << size << " bytes";
  }
  ASSERT_FALSE(ParseManifest(whole + "\n").ok());
  ASSERT_FALSE(ParseManifest(whole + whole).ok());
  ASSERT_TRUE(ParseManifest(whole).ok());
  WriteBytes(path, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(Newest().path, folder_ + "/step-10");
}

TEST_F(CheckpointTest, AManifestStatesItsModelToTheLastBit) {
  Manifest manifest;
  manifest.shards = {{"a", 1, std::string(32, '0')}};
  EXPECT_EQ(ParseManifest(ManifestText(manifest))->model, std::nullopt);  // format 2
  ModelShape gpt2 = {.vocab_size = 7,
                     .hidden_size = 6,
                     .num_blocks = 1,
                     .num_heads = 2,
                     .num_kv_heads = 2,
                     .head_dim = 3,
                     .ffn_size = 24,
                     .max_positions = 5,
                     .norm_eps = 1.0 / 3,
                     .initializer_range = 0.1};
  SetArchitecture(Architecture::kGpt2, gpt2);
  for (const ModelShape& model :
       {gpt2, ModelShape{.architecture = Architecture::kLlama,
              .vocab_size = 1 << 30,
              .hidden_size = 6,
              .num_blocks = 3,
              .num_heads = 4,
              .num_kv_heads = 2,
              .head_dim = 8,
              .ffn_size = 10,
              .max_positions = 64,
              .rope_theta = 500000.1,
              .tied_embeddings = false,
              .rope_scaling = {.factor = 8.1, .original_max_positions = 16},
              .attention_bias = true}}) {
    manifest.model = model;
    const auto read = ParseManifest(ManifestText(manifest));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->model, model);
  }
  // A model that cannot be is refused, however well it is hashed.
  manifest.model->num_heads = 5;
  EXPECT_EQ(ParseManifest(ManifestText(manifest)).status().code(), absl::StatusCode::kDataLoss);
}

// A manifest that is well hashed but wrong: written by something else on purpose.
TEST_F(CheckpointTest, AForgedManifestIsReadWithSuspicion) {
  const auto forged = [](const std::string& body) {
    const std::string start = body + ",\n";
    return ParseManifest(start + "  \"manifest_xxh3\": \"" + HashBytes(start) + "\"\n}\n");
  };
  const std::string head =
      "{\"format_version\":2,\"step\":1,\"generation\":1,\"next_sample\":0,\"skipped_steps\":0,"
      "\"skipped_in_a_row\":0,\"loss_scale\":0.0,\"loss_scale_good_steps\":0,\"loss_scale_"
      "hysteresis\":0,\"weft_version\":\"\","
      "\"layout\":\"\",\"facts\":{}";
  const std::string hash(32, '0');
  const auto shard = [&](const std::string& file, const std::string& bytes) {
    return head + ",\"shards\":[{\"file\":" + file + ",\"bytes\":" + bytes + ",\"xxh3\":\"" + hash +
           "\"}]";
  };
  EXPECT_TRUE(forged(shard("\"a\"", "1")).ok()) << forged(shard("\"a\"", "1")).status();
  EXPECT_THAT(forged(head + ",\"shards\":" + std::string(400'000, '[')).status().ToString(),
              HasSubstr("nested deeper than 64"));
  for (const std::string& body :
       {shard("\"../a\"", "1"), shard("\"/etc/passwd\"", "1"), shard("\"..\"", "1"),
        shard("\"\"", "1"), shard("\"a\\u0000b\"", "1"), shard("7", "1"), shard("\"a\"", "-1"),
        shard("\"a\"", "1e300"), shard("\"a\"", "18446744073709551615"), head,
        head + ",\"shards\":[]", head + ",\"shards\":[1]", head + ",\"shards\":{}",
        std::string("[1"), std::string("{\"format_version\":4"), std::string("{\"a\":1")}) {
    EXPECT_EQ(forged(body).status().code(), absl::StatusCode::kDataLoss) << body;
  }
}

TEST_F(CheckpointTest, RandomFlipsAndCutsOfAnyFileAreAllRefused) {
  Save(10);
  Save(20);
  std::mt19937 random(20261121);
  const std::vector<std::string> files = NamesIn(folder_ + "/step-20");
  ASSERT_EQ(files.size(), 3u);
  for (int round = 0; round < 600; ++round) {
    const std::string path = folder_ + "/step-20/" + files[random() % files.size()];
    const std::string whole = ReadBytes(path);
    std::string damaged = whole;
    const size_t place = random() % whole.size();
    if (round % 3 == 0) {
      damaged.resize(place);
    } else {
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << (random() % 8)));
    }
    WriteBytes(path, damaged);
    const FoundCheckpoint found = Newest();
    ASSERT_EQ(found.path, folder_ + "/step-10") << "round " << round << ", byte " << place;
    ASSERT_EQ(found.refused.size(), 1u);
    ASSERT_EQ(ValueOf(found), 101);
    WriteBytes(path, whole);
  }
  EXPECT_EQ(Newest().path, folder_ + "/step-20");
}

TEST_F(CheckpointTest, AFileSizeLimitFailsTheSaveAndLeavesThePreviousOne) {
  Save(10);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // SIGXFSZ would kill the process before write() could say EFBIG.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const std::vector<float> values(4096, 1);
    const auto shard = WriteShard(StageFolder(folder_, kRun, 1, 20), 0,
                                  {{BoxToSave{"w", {4096}, {0}, {4096}, values}}});
    _exit(shard.status().code() == absl::StatusCode::kResourceExhausted ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_THAT(NamesIn(StageFolder(folder_, kRun, 1, 20)), IsEmpty()) << "no torn shard is left";
  EXPECT_EQ(Newest().path, folder_ + "/step-10");
}

TEST_F(CheckpointTest, AFullDiskFailsTheSaveAndLeavesThePreviousOne) {
  fs::create_directories(folder_);
  // In a mount namespace of its own, so that nothing stays mounted whatever happens.
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("weft_test", folder_.c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  }
  Save(10);
  const std::vector<float> values(1 << 20, 1);
  const auto shard = WriteShard(StageFolder(folder_, kRun, 1, 20), 0,
                                {{BoxToSave{"w", {1 << 20}, {0}, {1 << 20}, values}}});
  EXPECT_EQ(shard.status().code(), absl::StatusCode::kResourceExhausted) << shard.status();
  EXPECT_THAT(std::string(shard.status().message()), HasSubstr("No space left on device"));
  EXPECT_EQ(Newest().path, folder_ + "/step-10");
  EXPECT_EQ(umount2(folder_.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace weft
