// A round says what it has to say once it is over: in order, and by as few messages as possible.
#include "coordinator/outgoing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class OutgoingTest : public testing::Test {
 protected:
  // "ack 3", "stop", "a>1,2": words `a` to the ranks of streams 1 and 2.
  void Say(const proto::AgentOrder& order) {
    if (order.has_to_ranks()) {
      said_.push_back(absl::StrCat(order.to_ranks().order(), ">",
                                   absl::StrJoin(order.to_ranks().streams(), ",")));
    } else {
      said_.push_back(order.has_stop_group() ? "stop" : absl::StrCat("ack ", order.acknowledged()));
    }
  }

  std::vector<std::string> said_;
  const Outgoing::Port agent_ = std::make_shared<const AgentPort>(
      AgentPort{.send = [this](const proto::AgentOrder& order) { Say(order); }, .close = {}});
  Outgoing outgoing_;
};

TEST_F(OutgoingTest, TellsRanksOfOneAgentTheSameByOneMessage) {
  for (const int64_t stream : {1, 2, 3}) outgoing_.ToRank(agent_, stream, "train");
  EXPECT_THAT(said_, IsEmpty()) << "the round is not over";
  outgoing_.Go();
  EXPECT_THAT(said_, ElementsAre("train>1,2,3"));
  outgoing_.Go();
  EXPECT_EQ(said_.size(), 1u) << "it is forgotten";
}

TEST_F(OutgoingTest, NeverOvertakesWhatTheSameRankIsToldBefore) {
  outgoing_.ToRank(agent_, 1, "a");
  outgoing_.ToRank(agent_, 2, "b");
  outgoing_.ToRank(agent_, 2, "a");
  outgoing_.ToRank(agent_, 3, "b");
  outgoing_.Go();
  EXPECT_THAT(said_, ElementsAre("a>1", "b>2,3", "a>2"));
}

TEST_F(OutgoingTest, KeepsTheAgentsOwnOrdersInPlace) {
  proto::AgentOrder stop;
  stop.mutable_stop_group();
  outgoing_.ToRank(agent_, 1, "a");
  outgoing_.ToAgent(agent_, stop);
  outgoing_.ToRank(agent_, 2, "a");
  outgoing_.AcknowledgeToAgent(agent_, 7);
  outgoing_.Then(
      [this](const absl::Status& durable) { said_.push_back(durable.ok() ? "ok" : ""); });
  outgoing_.Go();
  EXPECT_THAT(said_, ElementsAre("ack 7", "a>1", "stop", "a>2", "ok"));
}

TEST_F(OutgoingTest, TellsAgentsInTheOrderInWhichTheyWereSpokenTo) {
  // Whatever their addresses are.
  std::vector<std::string> told;
  std::vector<Outgoing::Port> agents;
  for (const char* name : {"a", "b", "c", "d"}) {
    agents.push_back(std::make_shared<const AgentPort>(
        AgentPort{.send = [&told, name](const proto::AgentOrder&) { told.emplace_back(name); },
                  .close = {}}));
  }
  for (const size_t i : {2, 0, 3, 1}) outgoing_.ToRank(agents[i], 1, "train");
  outgoing_.Go();
  EXPECT_THAT(told, ElementsAre("c", "a", "d", "b"));
}

TEST_F(OutgoingTest, SaysNothingOfWhatIsNotDurable) {
  outgoing_.ToRank(agent_, 1, "a");
  absl::Status answer;
  outgoing_.Then([&](const absl::Status& durable) { answer = durable; });
  outgoing_.Drop(absl::UnavailableError("no disk"));
  outgoing_.Go();
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_EQ(answer, absl::UnavailableError("no disk"));
}

}  // namespace
}  // namespace weft
