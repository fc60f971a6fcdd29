// Notes between ranks by way of the coordinator: a real unix socket, real gRPC, two workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "process/version.h"
#include "tests/coordinator/in_process.h"
#include "tests/plan/sample_jobs.h"
#include "worker/process/link.h"

namespace weft {
namespace {

using testing::HasSubstr;

class NotesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    agent_ = std::make_unique<InProcessHost>(coordinator_);
    Layout layout;
    layout.dp = 2;
    layout.gradient_accumulation_steps = 8;
    ASSERT_TRUE(coordinator_.Submit("r1", SampleJob(), layout).ok());
    ASSERT_NO_FATAL_FAILURE(Launch(1));
  }
  void Launch(int64_t generation) {
    const auto duty = agent_->NextOrder();
    ASSERT_TRUE(duty.ok() && duty->has_launch());
    ASSERT_EQ(duty->launch().generation(), generation);
  }
  std::unique_ptr<Link> Attach(int64_t generation, int rank) {
    LinkOptions options;
    options.agent = agent_->rank_target();
    options.rank = rank;
    options.world_size = 2;
    options.generation = generation;
    auto link = Link::Attach(options);
    EXPECT_TRUE(link.ok()) << link.status();
    return link.ok() ? *std::move(link) : nullptr;
  }
  InProcessCoordinator coordinator_;
  std::unique_ptr<InProcessHost> agent_;
};

TEST_F(NotesTest, ReachTheRanksTheyAreForWithAllTheirBytes) {
  const auto zero = Attach(1, 0);
  const auto one = Attach(1, 1);
  std::string id(128, '\0');
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<char>(i * 7 - 100);
  one->SendNote("device", {0}, "gpu-1");
  zero->SendNote("id", {}, id);
  EXPECT_EQ(*zero->WaitForNote("device", 1, kPatienceMs), "gpu-1");
  EXPECT_EQ(*one->WaitForNote("id", 0, kPatienceMs), id);
  EXPECT_EQ(*zero->WaitForNote("id", 0, kPatienceMs), id) << "none named: the sender too";
  const auto missing = one->WaitForNote("device", 1, 50);
  EXPECT_TRUE(absl::IsDeadlineExceeded(missing.status())) << "it was for rank 0 alone";
  EXPECT_THAT(missing.status().message(), HasSubstr("no word of device from rank 1 within 50 ms"));
}

TEST_F(NotesTest, WaitForARankThatComesLater) {
  const auto zero = Attach(1, 0);
  zero->SendNote("id", {1}, "early");
  ASSERT_TRUE(absl::IsDeadlineExceeded(zero->WaitForNote("id", 0, 100).status()));
  const auto one = Attach(1, 1);
  EXPECT_EQ(*one->WaitForNote("id", 0, kPatienceMs), "early");
}

// The coordinator keeps what it was told in its memory alone: the workers say it again.
TEST_F(NotesTest, SurviveARestartOfTheCoordinator) {
  const auto zero = Attach(1, 0);
  auto one = Attach(1, 1);
  zero->SendNote("id", {}, "before");
  ASSERT_TRUE(one->WaitForNote("id", 0, kPatienceMs).ok());
  coordinator_.Stop();
  one->SendNote("device", {0}, "while nobody listens");
  ASSERT_TRUE(coordinator_.Start().ok());
  EXPECT_EQ(*zero->WaitForNote("device", 1, kPatienceMs), "while nobody listens");
}

TEST_F(NotesTest, OfAnOldGenerationNeverReachTheNext) {
  {
    const auto zero = Attach(1, 0);
    const auto one = Attach(1, 1);
    zero->SendNote("id", {}, "of the first");
    ASSERT_TRUE(one->WaitForNote("id", 0, kPatienceMs).ok());
  }
  RawWorker ghost(agent_->rank_target(), 1, 0, 2, Version());
  agent_->RankEnded(1, /*rank=*/1, /*signal=*/9);
  ASSERT_TRUE(agent_->NextOrder()->has_stop_group());
  agent_->GroupEnded(1, /*clean=*/false);
  ASSERT_NO_FATAL_FAILURE(Launch(2));
  const auto zero = Attach(2, 0);
  const auto one = Attach(2, 1);
  proto::WorkerReport late;
  late.mutable_note()->set_topic("id");
  late.mutable_note()->set_value("of a ghost");
  ghost.Say(late);
  EXPECT_TRUE(absl::IsDeadlineExceeded(one->WaitForNote("id", 0, 200).status()));
  zero->SendNote("id", {}, "of the second");
  EXPECT_EQ(*one->WaitForNote("id", 0, kPatienceMs), "of the second");
}

TEST_F(NotesTest, AreFromTheRankWhoseStreamCarriesThem) {
  const auto zero = Attach(1, 0);
  RawWorker one(agent_->rank_target(), 1, 1, 2, Version());
  proto::WorkerReport forged;
  forged.mutable_note()->set_topic("id");
  forged.mutable_note()->set_from(0);
  forged.mutable_note()->set_value("as if of rank 0");
  one.Say(forged);
  EXPECT_EQ(*zero->WaitForNote("id", 1, kPatienceMs), "as if of rank 0");
  EXPECT_TRUE(absl::IsDeadlineExceeded(zero->WaitForNote("id", 0, 50).status()));
  forged.mutable_note()->set_value("changed");
  one.Say(forged);
  EXPECT_THAT(one.WaitForEnd().message(), HasSubstr("has another note id already"));
}

// Once a rank is ready nobody needs them: a restarted coordinator is not told again.
TEST_F(NotesTest, AreForgottenWhenTheirRankIsReady) {
  const auto zero = Attach(1, 0);
  const auto has_notes = [](const proto::Order& order) { return order.has_notes(); };
  {
    RawWorker one(agent_->rank_target(), 1, 1, 2, Version());
    zero->SendNote("id", {}, "x");
    ASSERT_TRUE(one.WaitFor(has_notes));
    zero->ReportReady(0, 1, 1);
    proto::WorkerReport ready;
    ready.mutable_ready();
    one.Say(ready);
    ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
    coordinator_.Stop();
  }
  ASSERT_TRUE(coordinator_.Start().ok());
  // An agent may have its lease before it is welcome; ranks that dial then are turned away.
  ASSERT_TRUE(agent_->WaitForLease());
  std::unique_ptr<RawWorker> again;
  const auto is_let_in = [](const proto::Order& order) { return order.has_lease(); };
  for (int attempt = 0; attempt < 100; ++attempt) {
    again = std::make_unique<RawWorker>(agent_->rank_target(), 1, 1, 2, Version());
    if (again->WaitFor(is_let_in)) break;
  }
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  zero->SendNote("later", {}, "y");
  const auto order = again->WaitFor(has_notes);
  ASSERT_TRUE(order);
  ASSERT_EQ(order->notes().notes_size(), 1);
  EXPECT_EQ(order->notes().notes(0).topic(), "later");
}

}  // namespace
}  // namespace weft
