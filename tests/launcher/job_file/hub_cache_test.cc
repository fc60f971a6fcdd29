#include "launcher/job_file/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "launcher/job_file/job_yaml.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using testing::HasSubstr;

class HubCacheTest : public testing::Test {
 protected:
  HubCacheTest() {
    if (const char* const before = std::getenv("HF_HUB_CACHE")) before_ = before;
    setenv("HF_HUB_CACHE", folder_.path().c_str(), 1);
    std::filesystem::create_directories(model() + "/refs");
    std::filesystem::create_directories(model() + "/snapshots/abc123");
    folder_.Write("models--some--Model-0.6B/refs/main", "abc123\n");
    folder_.Write("models--some--Model-0.6B/snapshots/abc123/config.json",
                  "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_positions\": 64, "
                  "\"n_embd\": 32, \"n_layer\": 4, \"n_head\": 4}");
  }
  ~HubCacheTest() override {
    if (before_) {
      setenv("HF_HUB_CACHE", before_->c_str(), 1);
    } else {
      unsetenv("HF_HUB_CACHE");
    }
  }
  std::string model() const { return folder_.path() + "/models--some--Model-0.6B"; }

  JobFolder folder_;
  std::optional<std::string> before_;
};

TEST(HubName, IsAnOwnerAndAName) {
  for (const char* name : {"Qwen/Qwen3-0.6B", "a/b", "meta-llama/Llama-3.1-8B"}) {
    EXPECT_TRUE(IsHubName(name)) << name;
  }
  for (const char* path :
       {"gpt2", "/a/b", "./b", "../b", "a/b/c", "a/", "~/b", "a/.b", "a b/c", ""}) {
    EXPECT_FALSE(IsHubName(path)) << path;
  }
}

TEST_F(HubCacheTest, HasTheSnapshotOfMain) {
  const auto found = HubSnapshot("some/Model-0.6B");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, model() + "/snapshots/abc123");
  // A folder of that name goes before it.
  EXPECT_EQ(*LocalModel(folder_.path(), "some/Model-0.6B"), folder_.path());
  EXPECT_EQ(*LocalModel("/nowhere/some/Model-0.6B", "some/Model-0.6B"), *found);
  EXPECT_EQ(*LocalModel("/nowhere", "./nowhere"), "/nowhere");
}

TEST_F(HubCacheTest, RefusesWithTheCommandThatFetches) {
  EXPECT_THAT(std::string(HubSnapshot("other/model").status().message()),
              HasSubstr("other/model: there is no such folder, and no model of that name in " +
                        folder_.path() + "; fetch the model: hf download other/model"));
  for (const char* ref : {"", "../..", "gone"}) {
    folder_.Write("models--some--Model-0.6B/refs/main", ref);
    EXPECT_THAT(std::string(HubSnapshot("some/Model-0.6B").status().message()),
                HasSubstr("is not whole; fetch the model: hf download some/Model-0.6B"))
        << ref;
  }
}

TEST_F(HubCacheTest, IsReadByAJob) {
  std::string job = kGoodJob;
  const size_t begin = job.find("model:\n"), end = job.find("data:\n");
  job.replace(begin, end - begin, "model: {path: some/Model-0.6B}\n");
  const auto file = ReadJobText(job, folder_.job(), {});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.model.num_blocks, 4);
  job.replace(job.find("some/"), 5, "else/");
  EXPECT_THAT(std::string(ReadJobText(job, folder_.job(), {}).status().message()),
              HasSubstr("model.path: else/Model-0.6B: there is no such folder, and no model"));
}

// Weights that only the first start reads may be gone by the next.
TEST_F(HubCacheTest, IsAskedOnlyWhereTheModelIsNeeded) {
  std::string job = kGoodJob;
  job.replace(job.find("model:\n"), 7, "model:\n  init_from: else/Model-0.6B\n");
  const auto later = ReadJobText(job, folder_.job(), {.check_files = false});
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->job.init_from, folder_.path() + "/else/Model-0.6B");
  EXPECT_THAT(std::string(ReadJobText(job, folder_.job(), {}).status().message()),
              HasSubstr("model.init_from: else/Model-0.6B: there is no such folder, and no model"));
}

}  // namespace
}  // namespace weft
