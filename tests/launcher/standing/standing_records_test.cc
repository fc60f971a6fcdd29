#include "launcher/standing/standing_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StandingRecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/weft-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::string folder_;
  const AllocationRecord running_{.order = {.job_id = "job-1",
                                            .allocation = 7,
                                            .run_id = "run-a",
                                            .run_folder = "/runs/a",
                                            .host_slots = 4,
                                            .slots = {0, 2},
                                            .ranks_user = "ann",
                                            .ranks_uid = 1000},
                                  .words = "/w",
                                  .words_from = 12};
  const AllocationRecord ended_{.order = {"job-2", 8, "run-b", "", 4, {}},
                                .end = AllocationEnd{1, 9, "o\"\nps"}};
};

TEST_F(StandingRecordsTest, ReadWhatTheOneBeforeWrote) {
  {
    const auto before = StandingRecords::Open(folder_, "m", 0);
    ASSERT_TRUE(before.ok()) << before.status();
    ASSERT_TRUE(before->Write(running_).ok());
    ASSERT_TRUE(before->Write(ended_).ok());
    ASSERT_TRUE(before->Write({.order = {"job-3", 9, "run-c", "", 1, {}}}).ok());
    before->Remove({.order = {"job-3", 9, "run-c", "", 1, {}}});
  }
  const auto after = StandingRecords::Open(folder_, "m", 0);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(after->Read(), ::testing::UnorderedElementsAre(running_, ended_));
}

TEST_F(StandingRecordsTest, BelongToOneStandingAgentAtATime) {
  const auto first = StandingRecords::Open(folder_, "m", 0);
  ASSERT_TRUE(first.ok());
  const auto second = StandingRecords::Open(folder_, "m", 20);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(getpid())));
}

TEST_F(StandingRecordsTest, LeaveNothingBehindWhenNothingIsRecorded) {
  auto records = StandingRecords::Open(folder_, "m", 0);
  ASSERT_TRUE(records.ok());
  AllocationRecord record = running_;
  record.words = folder_ + "/run-a.log";
  std::ofstream(record.words) << "words";
  ASSERT_TRUE(records->Write(record).ok());
  records->RemoveIfEmpty();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/allocation-7.json"));
  EXPECT_FALSE(StandingRecords::Open(folder_, "m", 0).ok()) << "it was given up all the same";
  records->Remove(record);
  records->RemoveIfEmpty();
  EXPECT_FALSE(std::filesystem::exists(folder_));
  EXPECT_TRUE(StandingRecords::Open(folder_, "m", 0).ok()) << "the next one has waited for a lock "
                                                              "that is no more";
}

TEST_F(StandingRecordsTest, LeaveOutAndRemoveWhatIsNoneOfThisBoot) {
  const auto records = StandingRecords::Open(folder_, "m", 0);
  ASSERT_TRUE(records.ok());
  std::ofstream(folder_ + "/allocation-1.json") << "{";
  std::ofstream(folder_ + "/allocation-2.json") << RecordText(running_, "m");  // another's name
  std::ofstream(folder_ + "/allocation-7.json") << RecordText(running_, "another boot");
  std::ofstream(folder_ + "/allocation-8.json.part") << RecordText(ended_, "m");
  EXPECT_THAT(records->Read(), IsEmpty());
  for (const char* name : {"1.json", "2.json", "7.json", "8.json.part"}) {
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/allocation-" + name)) << name;
  }
}

TEST(RecordText, KeepsWordsThatAreCutInsideACharacter) {
  AllocationRecord record{.order = {"job-1", 7, "run-a", "", 1, {}},
                          .end = AllocationEnd{1, 0, "\xe2\x82"}};
  const auto read = ParseRecord(RecordText(record, "m"), "m");
  ASSERT_TRUE(read && read->end);
  EXPECT_EQ(read->end->exit_code, 1);
}

TEST(ParseRecord, RefusesWhatWouldBeADangerAsAPath) {
  AllocationRecord record{.order = {"job-1", 7, "../../x", "", 1, {}}};
  EXPECT_EQ(ParseRecord(RecordText(record, "m"), "m"), std::nullopt);
}

}  // namespace
}  // namespace weft
