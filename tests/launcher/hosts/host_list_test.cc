#include "launcher/hosts/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;

std::vector<ListedHost> Listed(const HostWords& words) {
  const auto hosts = ListHosts(words);
  EXPECT_TRUE(hosts.ok()) << hosts.status();
  return hosts.value_or(std::vector<ListedHost>());
}

std::string Refusal(const HostWords& words) {
  const auto hosts = ListHosts(words);
  EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << words.hosts;
  return std::string(hosts.status().message());
}

TEST(HostList, ReadsHostsOfTheCommandLine) {
  EXPECT_THAT(Listed({.hosts = "a,b:2,user@c:4,[fd00::1]:8,10.0.0.7"}),
              ElementsAre(ListedHost{"a"}, ListedHost{"b", "", 2}, ListedHost{"c", "user", 4},
                          ListedHost{"fd00::1", "", 8}, ListedHost{"10.0.0.7"}));
}

TEST(HostList, ReadsAFileOfOpenMpiOrDeepSpeed) {
  EXPECT_THAT(
      Listed({.hostfile = "hosts",
              .hostfile_text = "# the lab\n"
                               "node1 slots=4 max_slots=8\n"
                               "\n"
                               "  node2:2   # two of it\n"
                               "node3\tslots = 3\r\n"
                               "user@node4 max_slots=6\n"
                               "node5"}),
      ElementsAre(ListedHost{"node1", "", 4}, ListedHost{"node2", "", 2},
                  ListedHost{"node3", "", 3}, ListedHost{"node4", "user", 6}, ListedHost{"node5"}));
}

TEST(HostList, ReadsWhatFailsTogetherWithAHost) {
  const auto hosts = Listed(
      {.hostfile = "hosts", .hostfile_text = "a slots=2 domain=rack1\nb domain = rack2\nc\n"});
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].domain, "rack1");
  EXPECT_THAT(SlotOptions(hosts[0]), ElementsAre("--domain=rack1", "--slots=2"));
  EXPECT_THAT(SlotOptions(hosts[1]), ElementsAre("--domain=rack2"));
  EXPECT_TRUE(SlotOptions(hosts[2]).empty());
  EXPECT_EQ(Refusal({.hostfile = "hosts", .hostfile_text = "a domain=-x\n"}),
            "hosts:1: domain=-x: use letters, digits, '.', '_' and '-'");
  EXPECT_EQ(
      Refusal({.hostfile = "hosts", .hostfile_text = "a slots=1 domain=x\na slots=1 domain=y\n"}),
      "hosts:2: a is named before with another domain; write the same one on each of its lines");
}

TEST(HostList, AddsUpTheSlotsOfAHostThatIsNamedTwice) {
  EXPECT_THAT(Listed({.hosts = "a:2,b:1,a:3"}),
              ElementsAre(ListedHost{"a", "", 5}, ListedHost{"b", "", 1}));
  EXPECT_EQ(Refusal({.hosts = "a,a:2"}),
            "--hosts: a is named before; slots of a host add up only where each says how many");
  EXPECT_EQ(Refusal({.hosts = "a:1,x@a:2"}),
            "--hosts: a is named before with another user; name it once");
}

// An agent is told which slots it has, and the job is planned for as many.
TEST(HostList, TellsAnAgentOfItsSlots) {
  const auto hosts = Listed({.hosts = "a:4,b:4,c", .include = "c:1,3@a:2,0@b"});
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_THAT(SlotOptions(hosts[0]), ElementsAre("--slots=4", "--only-slots=0,2"));
  EXPECT_THAT(SlotOptions(hosts[1]), ElementsAre("--slots=4"));
  EXPECT_THAT(SlotOptions(hosts[2]), ElementsAre("--only-slots=1,3"));
  EXPECT_EQ(UsedSlotCount(hosts[0]), 2);
  EXPECT_EQ(UsedSlotCount(hosts[1]), 4);
  EXPECT_EQ(UsedSlotCount(hosts[2]), 2);
  EXPECT_EQ(ChosenSlotsText(hosts), "a: slots 0, 2 of 4; c: slots 1, 3");
  const auto rest = Listed({.hosts = "a:4,c", .exclude = "a:1@c:0"});
  EXPECT_THAT(SlotOptions(rest[0]), ElementsAre("--slots=4", "--without-slots=1"));
  EXPECT_EQ(UsedSlotCount(rest[0]), 3);
  EXPECT_EQ(UsedSlotCount(rest[1]), 0) << "its agent knows how many there are";
  EXPECT_EQ(ChosenSlotsText(rest), "a: all but slot 1 of 4; c: all but slot 0");
  EXPECT_EQ(ChosenSlotsText(Listed({.hosts = "a:4"})), "");
}

TEST(HostList, KeepsWhatIsIncludedAndLeavesOutWhatIsExcluded) {
  EXPECT_THAT(Listed({.hosts = "a:4,b:4,c", .include = "c@a:2,0,2"}),
              ElementsAre(ListedHost{"a", "", 4, {0, 2}}, ListedHost{"c"}));
  EXPECT_THAT(Listed({.hosts = "a:4,b:2,c", .exclude = "a:1@b:0,1@c:3"}),
              ElementsAre(ListedHost{"a", "", 4, {}, {1}}, ListedHost{"c", "", 0, {}, {3}}));
  EXPECT_THAT(Listed({.hosts = "a,b,[fd00::1]", .exclude = "[fd00::1]@a"}),
              ElementsAre(ListedHost{"b"}));
}

TEST(HostList, TellsEveryMistakeAtOnceWithItsPlace) {
  EXPECT_EQ(Refusal({.hostfile = "/lab/hosts",
                     .hostfile_text = "node1 slots=four\n"
                                      "node2 slot=4\n"
                                      "node3 slots=4 max_slots=2\n"
                                      "-oProxyCommand=reboot slots=1\n"
                                      "node5:0\n",
                     .include = "node9"}),
            "/lab/hosts:1: slots=four: use a number from 1 to 4096\n"
            "/lab/hosts:2: slot=4 is unknown; use slots=N, max_slots=N or domain=NAME\n"
            "/lab/hosts:3: slots=4 is more than max_slots=2; use 2 or fewer\n"
            "/lab/hosts:4: \"-oProxyCommand=reboot\" is not a host; write NAME, NAME:SLOTS or "
            "USER@NAME:SLOTS, and an IPv6 address in brackets\n"
            "/lab/hosts:5: node5:0: 0 is not a number of slots; use 1 to 4096\n"
            "--include: \"node9\" is none of the hosts of /lab/hosts");
}

TEST(HostList, RefusesWhatNoHostCanBeCalled) {
  for (const char* text : {"a,,b", "a b", "-a", "a;reboot", "$(x)", "x y@a", "-x@a", "@a", "a@",
                           "[fd00::1", "[fd00::1]2", "a:2:3", "a:-1", "a:99999", "fd00::1"}) {
    EXPECT_NE(Refusal({.hosts = text}), "") << text;
  }
}

TEST(HostList, RefusesChoicesThatContradictOrLeaveNothing) {
  EXPECT_EQ(Refusal({.hosts = "a", .hostfile = "f", .hostfile_text = "b\n"}),
            "--hostfile: stands beside --hosts; keep one, and choose hosts of a file by --include");
  EXPECT_EQ(Refusal({.hosts = "a,b", .include = "a", .exclude = "b"}),
            "--exclude: stands beside --include; keep one of the two");
  EXPECT_EQ(Refusal({.hosts = "a,b:2", .exclude = "b@a"}),
            "--hosts a,b:2: names no host that is left");
  EXPECT_EQ(Refusal({.hostfile = "f", .hostfile_text = "# none\n"}),
            "f: names no host that is left");
  EXPECT_EQ(Refusal({.hosts = "node1:2", .include = "nod1"}),
            "--include: \"nod1\" is none of the hosts; is node1 meant?");
  EXPECT_EQ(Refusal({.hosts = "a:2", .include = "a:2"}),
            "--include: a:2: \"2\" is not a slot of a; use 0 to 1");
}

TEST(SetDomains, GivesEachHostTheFilesAndRefusesWhatItDoesNotKnow) {
  const FailureDomains domains = {{"rack1", "h[1-2]"}, {"rack2", "h3"}};
  const auto refusal = [&](std::vector<ListedHost> hosts) {
    return std::string(SetDomains(domains, &hosts).message());
  };
  std::vector<ListedHost> hosts = {
      {.name = "h3"}, {.name = "h1"}, {.name = "h2", .domain = "rack1"}};
  ASSERT_TRUE(SetDomains(domains, &hosts).ok());
  EXPECT_EQ(hosts[0].domain, "rack2");
  EXPECT_EQ(hosts[1].domain, "rack1");
  EXPECT_EQ(refusal({{.name = "h1"}, {.name = "h4"}}),
            "cluster.failure_domains: host h4 is in none of rack1, rack2; name it in one of them");
  EXPECT_EQ(refusal({{.name = "h1", .domain = "rack2"}}),
            "cluster.failure_domains: host h1 is in rack1, but the host file says domain=rack2; "
            "write the same one, or leave it out there");
  hosts = {{.name = "x"}};
  EXPECT_TRUE(SetDomains({}, &hosts).ok());
  EXPECT_EQ(hosts[0].domain, "");
}

}  // namespace
}  // namespace weft
