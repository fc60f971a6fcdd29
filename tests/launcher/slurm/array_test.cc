// Arrays: which values each task has, and where it runs.
#include "launcher/slurm/array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ArrayTasks, AreTheProductOfAllLists) {
  const auto tasks = ArrayTasks({"optimizer.lr=1e-3,1e-4", "training.seed=1,2"});
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  EXPECT_THAT(*tasks, ElementsAre(Sets{"optimizer.lr=1e-3", "training.seed=1"},
                                  Sets{"optimizer.lr=1e-3", "training.seed=2"},
                                  Sets{"optimizer.lr=1e-4", "training.seed=1"},
                                  Sets{"optimizer.lr=1e-4", "training.seed=2"}));
}

TEST(ArrayTasks, KeepListsAndTextsWhole) {
  const auto tasks = ArrayTasks({"optimizer.betas=[0.9, 0.95],[0.8,0.9]", "a={b: 1, c: 2},'x,y'"});
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  ASSERT_EQ(tasks->size(), 4U);
  EXPECT_THAT((*tasks)[0], ElementsAre("optimizer.betas=[0.9, 0.95]", "a={b: 1, c: 2}"));
  EXPECT_THAT((*tasks)[3], ElementsAre("optimizer.betas=[0.8,0.9]", "a='x,y'"));
}

TEST(ArrayTasks, SayWhatIsNoList) {
  std::string thousand = "a=0";
  for (int i = 1; i <= 1000; ++i) thousand += "," + std::to_string(i);
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"optimizer.lr"}, "--array optimizer.lr: is no list of values; write KEY=a,b,c"},
      {{"=1"}, "is no list of values"},
      {{"a=1,,2"}, "has an empty value"},
      {{"a="}, "has an empty value"},
      {{"a=1", "a=2"}, "a is listed already"},
      {{"cluster.nodes=1,2"}, "cluster.nodes would make another job of each task"},
      {{"job.name=a,b"}, "each task has a name and a folder already"},
      {{thousand}, "that makes 1001 runs; submit at most 1000"}};
  for (const auto& [words, said] : cases) {
    const auto tasks = ArrayTasks(words);
    ASSERT_FALSE(tasks.ok()) << said;
    EXPECT_THAT(std::string(tasks.status().message()), HasSubstr(said));
  }
}

TEST(TaskSets, GiveEachTaskAFolderOfItsOwn) {
  EXPECT_THAT(TaskSets({"a=1"}, "/shared/runs", "tiny", 3),
              ElementsAre("a=1", "job.output_dir=/shared/runs/tiny", "job.name=tiny-3"));
}

TEST(AfterText, NamesAllThatComeFirst) {
  EXPECT_EQ(*AfterText({}, "singleton"), "singleton");
  EXPECT_EQ(*AfterText({"12"}, ""), "afterok:12");
  EXPECT_EQ(*AfterText({"12", "13_4"}, "singleton"), "afterok:12:13_4,singleton");
  for (const char* const wrong : {"", "job-1", "12_", "_3", "1 2"}) {
    EXPECT_FALSE(AfterText({wrong}, "").ok()) << wrong;
  }
}

}  // namespace
}  // namespace weft
