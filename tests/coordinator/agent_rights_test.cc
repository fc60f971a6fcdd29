// Agents are let in for a job by these tables, without a wire.
#include "coordinator/service/agent_rights.h"

#include <gtest/gtest.h>

#include <functional>

#include "process/agent_token.h"

namespace weft {
namespace {

constexpr char kFleetSecret[] = "a secret of the fleet";
constexpr int64_t kAnnsUid = 1000, kBobsUid = 1001;

std::map<std::string, FleetHost> Hosts() {
  return {{"m1", {.host = "h1", .owner = "ann", .owner_uid = kAnnsUid}},
          {"m2", {.host = "h2", .owner = "ann", .owner_uid = kAnnsUid}},
          {"m3", {.host = "h3", .owner = "bob", .owner_uid = kBobsUid}}};
}

// job-7 has allocation 5 of m1 and m2.
AgentRights Rights(int64_t tokens_after = 0) {
  FleetJob placed;
  placed.allocation = 5;
  placed.shares = {{"m1", {0}}, {"m2", {0}}};
  return AgentRights("job-7", placed, Hosts(), {kFleetSecret, tokens_after});
}

proto::Hello HelloOfH1() {
  proto::Hello hello;
  hello.set_job_id("job-7");
  hello.set_allocation(5);
  hello.set_machine("m1");
  hello.set_host("h1");
  hello.set_token(Rights().TokenFor("m1"));
  return hello;
}

TEST(AgentRights, LetInWhoWasStartedThereForTheJob) {
  EXPECT_EQ(*Rights().Check(HelloOfH1(), {.uid = kAnnsUid}), AgentStay::kForTheJob);
  EXPECT_EQ(*Rights().Check(HelloOfH1(), {.name = "h1"}), AgentStay::kForTheJob);
}

TEST(AgentRights, RefuseAllOthersInTheSameWords) {
  const AgentPeer on_socket{.uid = kAnnsUid}, over_network{.name = "h1"};
  struct Case {
    const char* what;
    std::function<void(proto::Hello&)> change;
    AgentPeer peer;
  };
  const auto nothing = [](proto::Hello&) {};
  const Case cases[] = {
      {"no token", [](proto::Hello& hello) { hello.clear_token(); }, on_socket},
      {"another token", [](proto::Hello& hello) { hello.set_token(std::string(64, '0')); },
       on_socket},
      {"a part of it", [](proto::Hello& hello) { hello.mutable_token()->resize(63); }, on_socket},
      {"another host's token",
       [](proto::Hello& hello) { hello.set_token(Rights().TokenFor("m2")); }, over_network},
      {"another machine of the job", [](proto::Hello& hello) { hello.set_machine("m2"); },
       on_socket},
      {"a machine that the job has not", [](proto::Hello& hello) { hello.set_machine("m3"); },
       on_socket},
      {"another host's name", [](proto::Hello& hello) { hello.set_host("h2"); }, on_socket},
      {"an older allocation", [](proto::Hello& hello) { hello.set_allocation(4); }, on_socket},
      {"no allocation", [](proto::Hello& hello) { hello.clear_allocation(); }, on_socket},
      {"another job", [](proto::Hello& hello) { hello.set_job_id("job-8"); }, on_socket},
      {"another user", nothing, {.uid = kBobsUid}},
      {"another host's certificate", nothing, {.name = "h2"}},
      {"a certificate of no name", nothing, {}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    proto::Hello hello = HelloOfH1();
    each.change(hello);
    const absl::StatusOr<AgentStay> stay = Rights().Check(hello, each.peer);
    EXPECT_EQ(stay.status(), NoRight(hello));
    for (const std::string& secret : {Rights().TokenFor("m1"), std::string("allocation 5")}) {
      EXPECT_EQ(stay.status().message().find(secret), std::string::npos) << stay.status();
    }
  }
}

// The agents of an older allocation were started by a weftd that knew of no tokens.
TEST(AgentRights, LetAnOlderAllocationsAgentsStayForTheirGenerationFromWhereTheirHostsAre) {
  proto::Hello hello = HelloOfH1();
  EXPECT_EQ(*Rights(5).Check(hello, {.uid = kAnnsUid}), AgentStay::kForTheJob)
      << "it has one by now";
  hello.clear_token();
  EXPECT_EQ(*Rights(5).Check(hello, {.uid = kAnnsUid}), AgentStay::kForItsGeneration);
  EXPECT_EQ(*Rights(5).Check(hello, {.name = "h1"}), AgentStay::kForItsGeneration);
  EXPECT_FALSE(Rights(5).Check(hello, {.uid = kBobsUid}).ok());
  EXPECT_FALSE(Rights(5).Check(hello, {.name = "h2"}).ok());
  EXPECT_FALSE(Rights(4).Check(hello, {.uid = kAnnsUid}).ok()) << "this one was given later";
  hello.set_token("not it");
  EXPECT_FALSE(Rights(5).Check(hello, {.uid = kAnnsUid}).ok());
}

TEST(AgentToken, IsOfOnePostAndOneFleet) {
  const AgentPost post{"job-7", 5, "m1", "h1"};
  const std::string token = AgentToken(kFleetSecret, post);
  EXPECT_EQ(token.size(), 64u);
  EXPECT_EQ(token, AgentToken(kFleetSecret, post)) << "a restarted weftd knows it too";
  EXPECT_NE(token, AgentToken("another secret", post));
  for (const AgentPost& other :
       {AgentPost{"job-8", 5, "m1", "h1"}, AgentPost{"job-7", 6, "m1", "h1"},
        AgentPost{"job-7", 5, "m2", "h1"}, AgentPost{"job-7", 5, "m1", "h2"},
        AgentPost{"job-7", 5, "m1 2:h1", ""}, AgentPost{"job-75", 5, "m1", "h1"}}) {
    EXPECT_NE(token, AgentToken(kFleetSecret, other));
  }
}

}  // namespace
}  // namespace weft
