#include "launcher/agent/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "launcher/agent/read_ahead.h"
#include "process/folder_token.h"

namespace weft {
namespace {

using testing::HasSubstr;
using Result = proto::CheckResult;

constexpr int64_t kGib = int64_t{1} << 30;

TEST(HostChecks, JudgeByWhatRanksNeed) {
  struct Case {
    Result result;
    Result::Severity severity;
    const char* found;
    const char* allowed;
  };
  proto::Gpu full;
  full.set_pci_address("0000:3b:00.0");
  full.set_memory_bytes(8 * kGib);
  full.set_free_bytes(3 * kGib);
  full.add_users()->set_pid(4711);
  full.mutable_users(0)->set_name("python3");
  full.mutable_users(0)->set_bytes(4 * kGib);
  const Case cases[] = {
      {JudgeDevices(BackendKind::kCpu, 2, 2, 0), Result::WELL, "2 cores", ""},
      {JudgeDevices(BackendKind::kCpu, 3, 1, 0), Result::NOTE, "1 core", "3 ranks"},
      {JudgeDevices(BackendKind::kCuda, 8, 1, 8), Result::WELL, "8 GPUs", ""},
      {JudgeDevices(BackendKind::kCuda, 8, 64, 7), Result::BROKEN, "7 GPUs", "8 ranks"},
      {JudgeDevices(BackendKind::kCuda, 8, 64, 0), Result::NOTE, "no GPU on the PCI", "8 ranks"},
      {JudgeClock(20), Result::WELL, "as the coordinator's", ""},
      {JudgeClock(-3000), Result::WELL, "3.0 s behind the coordinator's", ""},
      {JudgeClock(-6500), Result::NOTE, "6.5 s behind", "at most 5 s"},
      {JudgeClock(43200000), Result::NOTE, "43200.0 s ahead of", "at most 5 s"},
      {JudgeClock(-43201000), Result::BROKEN, "43201.0 s behind", "at most 12 h"},
      {JudgeRankMemory(8 * kGib, 4, 2 * kGib), Result::WELL, "8.00 GiB free", ""},
      {JudgeRankMemory(7 * kGib, 4, 2 * kGib), Result::BROKEN, "7.00 GiB free", "need 8.00 GiB"},
      {JudgeRankMemory(std::nullopt, 4, 2 * kGib), Result::WELL, "does not say", ""},
      {JudgeGpuMemory(nullptr, 2 * kGib, 8 * kGib), Result::WELL, "NVML does not say", ""},
      {JudgeGpuMemory(&full, 2 * kGib, 8 * kGib), Result::NOTE, "3.00 GiB of 8.00 GiB free",
       "cluster.profile says 8.00 GiB"},
      {JudgeGpuMemory(&full, 4 * kGib, 8 * kGib), Result::BROKEN,
       "GPU 0000:3b:00.0 has 3.00 GiB of 8.00 GiB free; process 4711 (python3) holds 4.00 GiB",
       "a rank needs 4.00 GiB"},
      {JudgeGpuMemory(&full, 2 * kGib, 3 * kGib), Result::WELL, "3.00 GiB of 8.00 GiB free", ""},
      {JudgeRankSharedMemory(kGib, 4, false), Result::WELL, "1.00 GiB free", ""},
      {JudgeRankSharedMemory(63 << 20, 4, false), Result::BROKEN, "63.0 MiB free",
       "4 ranks need 64.0 MiB"},
      {JudgeRankSharedMemory(63 << 20, 4, true), Result::NOTE, "63.0 MiB free", "64.0 MiB"},
      {JudgeRankSharedMemory(std::nullopt, 1, false), Result::BROKEN, "is not there",
       "1 rank needs"},
      {JudgeNetwork("10.78.0.0/24", {"fd00::1", "10.78.0.12"}), Result::WELL, "10.78.0.12", ""},
      {JudgeNetwork("10.78.0.0/24", {"10.1.0.1"}), Result::BROKEN, "10.1.0.1", "10.78.0.0/24"},
      {JudgeNetwork("", {}), Result::BROKEN, "no address", "others need one"},
      {JudgeData({"/a 1:x", "/b 2:y"}, {"/a 1:x", "/b 2:y"}), Result::WELL, "the same 2 files", ""},
      {JudgeData({"/a 1:x", "/b 2:y"}, {"/a 1:x", "/b 3:z"}), Result::BROKEN,
       "/b has other contents here (3:z)", "they are 2:y"},
      {JudgeData({"/a 1:x"}, {"/a: no such file"}), Result::BROKEN, "/a: no such file", ""},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.result.ShortDebugString());
    EXPECT_EQ(each.result.severity(), each.severity);
    EXPECT_THAT(each.result.found(), HasSubstr(each.found));
    EXPECT_THAT(each.result.allowed(), HasSubstr(each.allowed));
    EXPECT_EQ(each.result.cure().empty(), each.severity == Result::WELL);
  }
}

class SharedFolderCheck : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/weft-checks-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Result Check(const std::string& token, int64_t needed_bytes = 0) const {
    return CheckSharedFolder({"run folder", folder_, "job.output_dir", needed_bytes}, token);
  }
  std::string folder_;
};

TEST_F(SharedFolderCheck, KnowsTheFolderByItsContent) {
  const std::string token = NewToken();
  EXPECT_THAT(Check(token).found(), HasSubstr("is another folder here"));
  ASSERT_EQ(WriteToken(folder_, token), absl::OkStatus());
  EXPECT_EQ(Check(token).severity(), Result::WELL);
  RemoveToken(folder_, token);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(Check("").severity(), Result::WELL) << "not compared";
}

TEST_F(SharedFolderCheck, NamesWhatElseIsWrong) {
  EXPECT_EQ(Check("", int64_t{1} << 60).severity(), Result::NOTE);
  std::filesystem::remove(folder_);
  EXPECT_EQ(Check("").severity(), Result::BROKEN);
  EXPECT_THAT(Check("").found(), HasSubstr("No such file or directory"));
  EXPECT_THAT(Check("").cure(), HasSubstr("all hosts mount at the same path"));
}

TEST_F(SharedFolderCheck, ReadAheadReadsAllUntilItIsToldToStop) {
  std::ofstream(folder_ + "/a") << std::string(3000, 'a');
  std::ofstream(folder_ + "/b") << std::string(5000, 'b');
  std::thread idle([this] {  // its priority stays as low as it becomes
    EXPECT_EQ(ReadAhead(folder_, [] { return true; }), 8000);
    EXPECT_EQ(ReadAhead(folder_, [] { return false; }), 0);
    EXPECT_EQ(ReadAhead(folder_ + "/none", [] { return true; }), 0);
  });
  idle.join();
}

}  // namespace
}  // namespace weft
