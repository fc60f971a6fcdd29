// Little of the command line that mpirun makes for its daemon is believed.
#include "launcher/machine/mpi_daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As mpirun 4.1.4 of Debian 12 says it, unquoted.
constexpr char kAsked[] =
    "-mca orte_leave_session_attached 1 -mca ess env -mca ess_base_jobid 1846607872 "
    "-mca ess_base_vpid 2 -mca ess_base_num_procs 3 -mca orte_node_regex "
    "m[1:1],weft-host-[1:1-2]@0(3) "
    "-mca orte_hnp_uri 1846607872.0;tcp://10.99.7.11,192.168.3.1:54351 "
    "--mca plm_rsh_agent weft-shim --mca plm_rsh_no_tree_spawn 1 --mca pml ob1 "
    "--mca btl self,vader,tcp --mca btl_tcp_if_include 10.99.7.0/24 "
    "--mca oob_tcp_if_include 10.99.7.0/24 --mca mpi_yield_when_idle 1 "
    "--mca orte_tmpdir_base /dev/shm/other --mca btl_vader_backing_directory /dev/shm/other "
    "--mca btl_vader_single_copy_mechanism cma --mca odls_base_sigkill_timeout 1 -mca plm rsh "
    "-mca orte_fork_agent /bin/evil -mca rmaps_base_mapping_policy seq "
    "-mca rmaps_base_oversubscribe 1 -mca hwloc_base_binding_policy none "
    "-mca pmix ^s1,s2,cray,isolated";

std::vector<std::string> Asked(const std::string& from = "", const std::string& to = "") {
  std::string text = kAsked;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

GroupOptions Here() {
  GroupOptions options;
  options.temporary_folder = "/tmp/weft-00ff@h2-tmp/g1";
  return options;
}

absl::StatusOr<DaemonCommand> CommandFor(const std::vector<std::string>& args) {
  return DaemonCommandOf("/usr/bin/orted", args, {"10.99.7.11", "192.168.3.1"}, Here());
}

TEST(DaemonCommand, IsBuiltFromWhatIsKnownWithThisHostsOwnFolders) {
  const auto command = CommandFor(Asked());
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(absl::StrJoin(command->argv, " "),
            "/usr/bin/orted -mca orte_leave_session_attached 1 -mca ess env -mca ess_base_jobid "
            "1846607872 -mca ess_base_vpid 2 -mca ess_base_num_procs 3 -mca orte_node_regex "
            "m[1:1],weft-host-[1:1-2]@0(3) -mca orte_hnp_uri "
            "1846607872.0;tcp://10.99.7.11,192.168.3.1:54351 -mca pml ob1 -mca btl self,vader,tcp "
            "-mca btl_tcp_if_include 10.99.7.0/24 -mca oob_tcp_if_include 10.99.7.0/24 -mca "
            "mpi_yield_when_idle 1 -mca orte_tmpdir_base /tmp/weft-00ff@h2-tmp/g1 -mca "
            "btl_vader_backing_directory /tmp/weft-00ff@h2-tmp/g1 -mca "
            "btl_vader_single_copy_mechanism none -mca odls_base_sigkill_timeout 1 -mca "
            "rmaps_base_mapping_policy seq -mca rmaps_base_oversubscribe 1 -mca "
            "hwloc_base_binding_policy none -mca pmix ^s1,s2,cray,isolated");
}

// Some settings of Open MPI name a program that its daemon executes, or a library that it loads.
TEST(DaemonCommand, LeavesOutWhatIsNoDaemonsOfOurs) {
  const auto command = CommandFor(Asked());
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->left_out,
              ElementsAre("plm_rsh_agent", "plm_rsh_no_tree_spawn", "plm", "orte_fork_agent"));
}

TEST(DaemonCommand, IsRefusedWhereNoMpirunOfOursWouldSayIt) {
  struct Case {
    const char* from;
    const char* to;
    const char* why;
  };
  for (const Case& each :
       {Case{"-mca ess env", "--debug-daemons", "unknown option --debug-daemons"},
        Case{"-mca ess env", "-mca ess tool", "ess tool has to be env"},
        Case{"-mca ess env", "", "ess is missing"},
        Case{"-mca ess env", "-mca ess env -mca ess env", "ess is given twice"},
        Case{"-mca pmix ^s1,s2,cray,isolated", "-mca pmix", "unknown option -mca"},
        Case{"vpid 2", "vpid 2;id", "ess_base_vpid 2;id is not a number"},
        Case{"btl self,vader,tcp", "btl /lib/x.so", "btl /lib/x.so is refused"},
        Case{"btl self,vader,tcp", "btl $(id)", "btl $(id) is refused"},
        Case{"10.99.7.11,", "10.6.6.6,",
             "names 10.6.6.6, which is not an address of the first host"},
        Case{"72.0;tcp", "72.1;tcp", "is not mpirun's address"},
        Case{"tcp://", "file://", "is not mpirun's address"},
        Case{":54351", "", "is not mpirun's address"},
        Case{"--mca orte_tmpdir_base /dev/shm/other", "", "orte_tmpdir_base is missing"}}) {
    const auto command = CommandFor(Asked(each.from, each.to));
    EXPECT_TRUE(absl::IsInvalidArgument(command.status())) << each.to;
    EXPECT_THAT(command.status().message(), HasSubstr(each.why));
  }
  EXPECT_FALSE(CommandFor({}).ok());
}

TEST(DaemonCommand, TakesAddressesOfBothKinds) {
  const std::vector<std::string> args =
      Asked("10.99.7.11,192.168.3.1:54351", "10.99.7.11:54351;tcp6://[fd00::1]:54352");
  EXPECT_FALSE(CommandFor(args).ok()) << "of another host";
  EXPECT_TRUE(DaemonCommandOf("orted", args, {"10.99.7.11", "fd00::1"}, Here()).ok());
  EXPECT_TRUE(DaemonCommandOf("orted", args, {}, Here()).ok());
}

}  // namespace
}  // namespace weft
