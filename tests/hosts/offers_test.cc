// A job is planned for what hosts offer: their memory, their slots where nobody names them,
// and what they share with each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/hosts/hosts_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTwoReplicas[] = "dp: 2, pp: 1, tp: 1";

class Offers : public HostsRun {
 protected:
  // The host's kernel says that so much memory is free, as in a container of another kind (lxcfs).
  void SetFree(int host, int64_t kib) {
    const std::string file = absl::StrCat(bed_->shared(), "/meminfo");
    const HostBed::Answer answer = bed_->Run(
        host, absl::StrCat("sed 's/^MemAvailable:.*/MemAvailable: ", kib, " kB/' /proc/meminfo > ",
                           file, " && mount --bind ", file, " /proc/meminfo"));
    ASSERT_EQ(answer.exit_code, 0) << answer.err;
  }
  std::string Reasons() const {
    std::string all;
    for (const RunEvent& event : Events()) absl::StrAppend(&all, event.reason, "\n");
    return all;
  }
};

TEST_F(Offers, AreWhatAJobIsPlannedForAndTheHostThatBindsIsNamed) {
  SetFree(2, 1600000);
  StartOnThreeHosts(WriteJob("dp: 6, tp: 1, pp: 1", OnThreeHosts(), kUnchecked, 20));
  ExpectEnd();
  EXPECT_THAT(Reasons(), HasSubstr("; planned for 3 of 3 hosts with 656 MiB of memory a rank, not "
                                   "2.00 GiB: host h2: 1.53 GiB free for 2 ranks"));
  EXPECT_THAT(WeftdLog(), Not(HasSubstr("left out")));
}

TEST_F(Offers, EndAJobThatHasNoPlanWithThem) {
  SetFree(3, 220000);
  StartOnThreeHosts(WriteJob("dp: 6, tp: 1, pp: 1", OnThreeHosts(), kUnchecked, 20));
  ExpectEnd(1);
  // Fewer ranks on each host would have more memory, but there are six.
  EXPECT_THAT(run_->Stderr(),
              HasSubstr("there is no plan for 3 of 3 with 32.0 MiB of memory a rank, "
                        "not 2.00 GiB: host h3: 215 MiB free for 2 ranks: the "
                        "libraries of a rank alone take 48.0 MiB of it"));
}

// Two of three hosts are in one rack: the second replica goes to the other one.
TEST_F(Offers, PutReplicasIntoDomainsThatTheFileNames) {
  const std::string domains =
      ", slots: 1, nodes: 3, failure_domains: {rack1: \"h[1-2]\", rack2: h3}";
  Start(WriteJob(kTwoReplicas, OnThreeHosts() + domains, kUnchecked, 20), {"--hosts", "h1,h2,h3"});
  ExpectEnd();
  EXPECT_THAT(WeftdLog(), HasSubstr("h1 (rack1): rank 0, stage 0, replica 0"));
  EXPECT_THAT(WeftdLog(), HasSubstr("h3 (rack2): rank 1, stage 0, replica 1"));
  EXPECT_THAT(WeftdLog(), HasSubstr("of 2 replicas 1 in rack1, 1 in rack2"));
}

// `weft agent --domain`, which the host file's word becomes.
TEST_F(Offers, PutReplicasIntoDomainsThatAgentsName) {
  const std::string file = bed_->shared() + "/hosts";
  bed_->Run(1, absl::StrCat("printf 'h1 slots=1 domain=b\\nh2 slots=1 domain=b\\n"
                            "h3 slots=1 domain=a\\n' > ",
                            file));
  Start(WriteJob(kTwoReplicas, OnThreeHosts() + ", nodes: 3", kUnchecked, 20),
        {"--hostfile", file});
  ExpectEnd();
  EXPECT_THAT(WeftdLog(), HasSubstr("h3 (a): rank 0, stage 0, replica 0"));
  EXPECT_THAT(WeftdLog(), HasSubstr("h1 (b): rank 1, stage 0, replica 1"));
}

TEST_F(Offers, OfHostsThatAreInNoDomainAreRefused) {
  Start(WriteJob(kTwoReplicas, OnThreeHosts() + ", failure_domains: {rack1: \"h[1-2]\"}",
                 kUnchecked, 20),
        {"--hosts", "h1,h2,h3"});
  ExpectEnd(2);
  EXPECT_THAT(run_->Stderr(), HasSubstr("host h3 is in none of rack1; name it in one of them"));
}

// Nobody says how many slots there are: each agent offers a slot a core.
TEST_F(Offers, OfSlotsThatNobodyNamesAreTheHostsCores) {
  const std::string cores = bed_->Run(1, "nproc").out;
  // A model that is worth sharing among all of them.
  Start(WriteJob("tp: 1, pp: 1", OnThreeHosts(), kUnchecked, 20),
        {"--hosts", "h1,h2,h3", "--set", "model.n_embd=64", "--set", "training.seq_len=64"});
  ExpectEnd();
  EXPECT_THAT(run_->Stdout(), HasSubstr("slots: as many as the agents offer"));
  EXPECT_THAT(WeftdLog(), HasSubstr(absl::StrCat("h3: rank")));
  EXPECT_THAT(Reasons(), HasSubstr(absl::StrCat("with ", std::stoi(cores), " ")));
}

}  // namespace
}  // namespace weft
