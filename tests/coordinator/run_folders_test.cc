// A job's folders belong to users, and are decided on without any process of the job.
#include "coordinator/service/run_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "process/folder_users.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

FleetHost HostOf(int64_t owner_uid, bool starts_as_submitter = false) {
  FleetHost host;
  host.host = "n";
  host.owner_uid = owner_uid;
  host.starts_as_submitter = starts_as_submitter;
  return host;
}

TEST(WritersOf, AreThoseAsWhomRanksRunAndNeitherRootNorThisProcess) {
  const std::map<std::string, FleetHost> hosts = {{"a", HostOf(991)},
                                                  {"b", HostOf(0)},
                                                  {"c", HostOf(0, /*starts_as_submitter=*/true)},
                                                  {"own", HostOf(geteuid())}};
  FleetJob job;
  job.request.owner_uid = 1000;
  job.shares = {{"a", {0}}, {"b", {0}}, {"own", {0}}, {"gone", {0}}};
  EXPECT_EQ(WritersOf(job, hosts), std::set<uid_t>{991});
  job.shares = {{"c", {0}}};
  EXPECT_EQ(WritersOf(job, hosts), std::set<uid_t>{1000});
  job.request.owner_uid = -1;
  EXPECT_EQ(WritersOf(job, hosts), std::set<uid_t>{});
}

TEST(RunFolders, OfAUserOfThisHostAreNotTakenOverTheNetwork) {
  std::string top = testing::TempDir() + "/folders-XXXXXX";
  ASSERT_NE(mkdtemp(top.data()), nullptr);
  v1::Submission submission;
  submission.set_run_folder(top + "/run");
  const Caller over_network{"ann", -1, Role::kSubmitter};
  EXPECT_EQ(MakeFoldersFor(over_network, submission), absl::OkStatus());
  ASSERT_EQ(MakeFolderFor({.readers = {12345}}, top + "/run"), 0);
  EXPECT_THAT(std::string(MakeFoldersFor(over_network, submission).message()),
              HasSubstr("/run was made for user 12345, who submits on weftd's socket"));
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace weft
