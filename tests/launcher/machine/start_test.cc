#include "launcher/machine/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace weft {
namespace {

const GroupOptions kOptions = {.worker = "/opt/weft/weft-worker",
                               .agent = "unix:/tmp/weft-a/ranks.sock",
                               .run_folder = "/runs/a",
                               .run_id = "00ff",
                               .temporary_folder = "/dev/shm/weft-00ff-tmp",
                               .generation = 3,
                               .world_size = 4,
                               .threads = 2,
                               .as_root = false,
                               .single_copy = false,
                               .env = {{"HELLO", "a b"}}};

const std::vector<std::string> kCommand = {"/opt/weft/weft-shim", "/opt/weft/weft-worker"};

TEST(MpirunArgv, IsThisLine) {
  EXPECT_EQ(absl::StrJoin(MpirunArgv(kOptions, kCommand), " "),
            "mpirun -n 4 --oversubscribe --bind-to none --stdin none --mca plm isolated --mca pml "
            "ob1 --mca btl self,vader --mca mpi_yield_when_idle 1 --mca orte_tmpdir_base "
            "/dev/shm/weft-00ff-tmp --mca btl_vader_backing_directory /dev/shm/weft-00ff-tmp --mca "
            "btl_vader_single_copy_mechanism none --mca odls_base_sigkill_timeout 0 -x HELLO -x "
            "OMP_NUM_THREADS -x OPENBLAS_NUM_THREADS -x TMPDIR -x WEFT_GENERATION -x WEFT_RUN "
            "/opt/weft/weft-shim /opt/weft/weft-worker");
}

TEST(WorkerArgv, IsThisLine) {
  EXPECT_EQ(absl::StrJoin(WorkerArgv(kOptions), " "),
            "/opt/weft/weft-worker --agent=unix:/tmp/weft-a/ranks.sock --generation=3 "
            "--run-folder=/runs/a");
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

TEST(MpirunArgv, HoldsNoValueOfTheEnvironment) {
  for (const std::string& argument : MpirunArgv(kOptions, kCommand)) EXPECT_NE(argument, "a b");
  const auto env = GroupEnvironment(kOptions);
  EXPECT_EQ(env.at("HELLO"), "a b");
  EXPECT_EQ(env.at("WEFT_RUN"), "00ff");
  EXPECT_EQ(env.at("WEFT_GENERATION"), "3");
  EXPECT_EQ(env.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(env.at("TMPDIR"), "/dev/shm/weft-00ff-tmp");
}

}  // namespace
}  // namespace weft
