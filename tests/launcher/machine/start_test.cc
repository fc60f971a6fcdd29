#include "launcher/machine/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace weft {
namespace {

const GroupOptions kOptions = {.worker = "/opt/weft/weft-worker",
                               .run_folder = "/runs/a",
                               .run_id = "00ff",
                               .temporary_folder = "/dev/shm/weft-00ff-tmp",
                               .generation = 3,
                               .world_size = 4,
                               .threads = 2,
                               .as_root = false,
                               .single_copy = false,
                               .env = {{"HELLO", "a b"}},
                               .host = "h1",
                               .programs = "/opt/weft",
                               .shim_socket = "/dev/shm/s",
                               .rank_socket = "/dev/shm/r",
                               .hosts = {},
                               .network = ""};

GroupOptions OnThreeHosts() {
  GroupOptions options = kOptions;
  options.hosts = {{"h1", {0, 3}}, {"10.0.0.2", {1}}, {"h3.example.com", {2}}};
  return options;
}

const std::vector<std::string> kCommand = {"weft-shim", "weft-worker"};

TEST(MpirunArgv, IsThisLine) {
  EXPECT_EQ(
      absl::StrJoin(MpirunArgv(kOptions, kCommand), " "),
      "mpirun -n 4 --oversubscribe --bind-to none --stdin none --mca plm isolated --mca ras "
      "^alps,gridengine,loadleveler,lsf,slurm,tm --mca oob_tcp_if_include 127.0.0.0/8 --mca pml "
      "ob1 --mca btl self,vader --mca mpi_yield_when_idle 1 --mca orte_tmpdir_base "
      "/dev/shm/weft-00ff-tmp --mca btl_vader_backing_directory /dev/shm/weft-00ff-tmp --mca "
      "btl_vader_single_copy_mechanism none --mca odls_base_sigkill_timeout 1 "
      "weft-shim weft-worker");
  GroupOptions one = kOptions;
  one.hosts = {{"h1", {0, 1, 2, 3}}};
  EXPECT_EQ(MpirunArgv(one, kCommand), MpirunArgv(kOptions, kCommand));
}

TEST(MpirunArgv, IsThisLineOnSeveralHosts) {
  GroupOptions options = OnThreeHosts();
  options.network = "10.78.0.0/24";
  EXPECT_EQ(absl::StrJoin(MpirunArgv(options, kCommand), " "),
            "mpirun -n 4 --oversubscribe --bind-to none --stdin none --noprefix --hostfile "
            "/dev/shm/weft-00ff-tmp/hosts --map-by seq --mca plm rsh --mca plm_rsh_agent weft-shim "
            "daemon --mca plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent 128 --mca "
            "orte_leave_session_attached 1 --mca orte_do_not_resolve 1 --mca pml ob1 --mca btl "
            "self,vader,tcp --mca btl_tcp_if_include 10.78.0.0/24 --mca oob_tcp_if_include "
            "10.78.0.0/24 --mca mpi_yield_when_idle 1 --mca orte_tmpdir_base "
            "/dev/shm/weft-00ff-tmp --mca btl_vader_backing_directory /dev/shm/weft-00ff-tmp --mca "
            "btl_vader_single_copy_mechanism none --mca odls_base_sigkill_timeout 1 weft-shim "
            "weft-worker");
  EXPECT_THAT(MpirunArgv(OnThreeHosts(), kCommand),
              testing::IsSupersetOf(
                  {"btl_tcp_if_exclude", "oob_tcp_if_exclude", "127.0.0.0/8,docker0,virbr0,sppp"}));
}

// Names of hosts may be addresses, aliases, or unknown to any resolver.
TEST(MpirunHostFile, HasALinePerRankInNamesOfOurOwn) {
  const GroupOptions options = OnThreeHosts();
  EXPECT_EQ(HostFileText(options, "node1.example.com"), "node1\nweft-host-1\nweft-host-2\nnode1\n");
  EXPECT_EQ(HostOfNode(options, "weft-host-2"), 2u);
  for (const char* other : {"weft-host-0", "weft-host-3", "weft-host-02", "h3.example.com", ""}) {
    EXPECT_EQ(HostOfNode(options, other), std::nullopt) << other;
  }
}

TEST(OwnRanks, AreAllOnOneHostAndTheShareOnSeveral) {
  EXPECT_THAT(OwnRanks(kOptions), testing::ElementsAre(0, 1, 2, 3));
  GroupOptions options = OnThreeHosts();
  EXPECT_THAT(OwnRanks(options), testing::ElementsAre(0, 3));
  options.own_host = 2;
  EXPECT_THAT(OwnRanks(options), testing::ElementsAre(2));
}

TEST(WorkerArgv, IsThisLine) {
  EXPECT_EQ(absl::StrJoin(WorkerArgv(kOptions), " "),
            "/opt/weft/weft-worker --generation=3 --run-folder=/runs/a");
}

TEST(MpirunArgv, AllowsRootOnlyToRootAndSingleCopyOnlyWherePermitted) {
  GroupOptions options = kOptions;
  options.as_root = true;
  options.single_copy = true;
  const std::vector<std::string> argv = MpirunArgv(options, kCommand);
  EXPECT_THAT(argv, testing::Contains("--allow-run-as-root"));
  EXPECT_THAT(argv, testing::Contains("cma"));
  EXPECT_THAT(MpirunArgv(kOptions, kCommand),
              testing::Not(testing::Contains("--allow-run-as-root")));
}

// The job is of another user than the one that runs it.
TEST(GroupEnvironment, KeepsWhatAnotherUsersJobAsksForToTheRanks) {
  GroupOptions options = kOptions;
  options.is_env_for_ranks_alone = true;
  options.env["NCCL_DEBUG"] = "INFO";
  const auto env = GroupEnvironment(options);
  EXPECT_EQ(env.count("HELLO"), 0u);
  EXPECT_EQ(env.at("WEFT_RANK_ENVIRONMENT"), "/dev/shm/weft-00ff-tmp/rank-environment");
  EXPECT_EQ(RankEnvironmentText(options), std::string("HELLO=a b\0NCCL_DEBUG=INFO\0", 26));
  EXPECT_EQ(MpirunArgv(options, kCommand), MpirunArgv(kOptions, kCommand));
}

// A command line is for everybody to read. Each host's agent gives these to what it starts, and
// ranks inherit them.
TEST(MpirunArgv, HoldsNothingOfTheEnvironment) {
  for (const std::string& argument : MpirunArgv(OnThreeHosts(), kCommand)) {
    EXPECT_NE(argument, "a b");
    EXPECT_NE(argument, "-x");
    EXPECT_THAT(argument, testing::Not(testing::HasSubstr("/dev/shm/s")));
  }
  const auto env = GroupEnvironment(kOptions);
  EXPECT_EQ(env.at("HELLO"), "a b");
  EXPECT_EQ(env.at("WEFT_RUN"), "00ff");
  EXPECT_EQ(env.at("WEFT_GENERATION"), "3");
  EXPECT_EQ(env.at("WEFT_HOST"), "h1");
  EXPECT_EQ(env.at("WEFT_SHIM_SOCKET"), "/dev/shm/s");
  EXPECT_EQ(env.at("WEFT_RANK_SOCKET"), "/dev/shm/r");
  EXPECT_EQ(env.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(env.at("TMPDIR"), "/dev/shm/weft-00ff-tmp");
  EXPECT_THAT(env.at("PATH"), testing::StartsWith("/opt/weft:"));
}

// Open MPI listens on every address of a host, whichever network it is told to use.
TEST(GroupEnvironment, LetsMpiListenOnOneAddressAlone) {
  GroupOptions options = kOptions;
  options.address = "10.78.0.11";
  options.env["LD_PRELOAD"] = "/opt/own.so";
  auto env = GroupEnvironment(options);
  EXPECT_EQ(env.at("WEFT_BIND_ADDRESS"), "10.78.0.11");
  EXPECT_EQ(env.at("LD_PRELOAD"), "/opt/weft/libweft_bind.so:/opt/own.so");
  options.address = "";
  env = GroupEnvironment(options);
  EXPECT_EQ(env.count("WEFT_BIND_ADDRESS"), 0u);
  EXPECT_EQ(env.at("LD_PRELOAD"), "/opt/own.so");
}

TEST(GroupEnvironment, FindsOurProgramsWhateverPathTheJobAsksFor) {
  GroupOptions options = kOptions;
  options.env["PATH"] = "/usr/local/bin";
  EXPECT_EQ(GroupEnvironment(options).at("PATH"), "/opt/weft:/usr/local/bin");
}

// A host without the name "localhost" waited 10 s for its resolver at each start.
TEST(GroupEnvironment, KeepsHwlocFromScreensUnlessSomebodyAsksForThem) {
  GroupOptions options = kOptions;
  EXPECT_THAT(GroupEnvironment(options).at("HWLOC_COMPONENTS"), testing::StartsWith("-gl,"));
  options.env["HWLOC_COMPONENTS"] = "gl";
  EXPECT_EQ(GroupEnvironment(options).at("HWLOC_COMPONENTS"), "gl");
}

TEST(RankVariables, CountSlotsOnTheirHost) {
  std::map<std::string, std::string> env;
  AddRankVariables(6, 1, 8, &env);
  EXPECT_EQ(env, (std::map<std::string, std::string>{
                     {"WEFT_RANK", "6"}, {"WEFT_LOCAL_RANK", "1"}, {"WEFT_WORLD_SIZE", "8"}}));
}

}  // namespace
}  // namespace weft
