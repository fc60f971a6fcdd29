// Real sockets on the loopback.
#include "launcher/agent/pair_door.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "launcher/machine/descriptor.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kHere[] = "127.0.0.1";
constexpr int kPatienceMs = 60000;  // for what comes at once: it only ends a test that has failed

proto::CheckPeer Peer(int port, const std::string& machine = "m1") {
  proto::CheckPeer peer;
  peer.set_machine(machine);
  peer.set_host("h1");
  peer.set_address(kHere);
  peer.set_port(port);
  return peer;
}

// Sends `words` and returns what comes back until the other side hangs up.
std::string Told(int port, const std::string& words) {
  const Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, kHere, &address.sin_addr);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(connection.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  std::string told;
  pollfd readable{connection.get(), POLLIN, 0};
  while (poll(&readable, 1, kPatienceMs) > 0) {
    char bytes[256];
    const ssize_t got = recv(connection.get(), bytes, sizeof(bytes), 0);
    if (got <= 0) break;
    told.append(bytes, static_cast<size_t>(got));
  }
  return told;
}

TEST(PairDoor, BothSidesKnowTheSecret) {
  const auto door = PairDoor::Open(kHere);
  ASSERT_TRUE(door.ok()) << door.status();
  const PairRound round{7, NewSecret()};
  (*door)->Answer(round, "m1", 3, kPatienceMs);
  const int port = (*door)->port();
  EXPECT_THAT(DialPeers(round, {Peer(port), Peer(port)}, kPatienceMs), IsEmpty());
}

TEST(PairDoor, WaitsForItsTurnWithThoseWhoAreEarly) {
  const auto door = PairDoor::Open(kHere);
  ASSERT_TRUE(door.ok()) << door.status();
  const PairRound round{7, NewSecret()};
  std::thread later([&] {
    usleep(50000);
    (*door)->Answer(round, "m1", 1, kPatienceMs);
  });
  EXPECT_THAT(DialPeers(round, {Peer((*door)->port())}, kPatienceMs), IsEmpty());
  later.join();
}

TEST(PairDoor, TellsAStrangerNothing) {
  const auto door = PairDoor::Open(kHere);
  ASSERT_TRUE(door.ok()) << door.status();
  const PairRound round{7, NewSecret()};
  (*door)->Answer(round, "m1", 2, kPatienceMs);
  const int port = (*door)->port();
  EXPECT_EQ(Told(port, ""), "");
  EXPECT_EQ(Told(port, "GET / HTTP/1.1\r\n\r\n"), "");
  EXPECT_EQ(Told(port, std::string(kDialBytes, 'x')), "");
  const std::string dial = DialMessage(round, "m1");
  EXPECT_EQ(Told(port, dial).size(), kProofBytes);
  EXPECT_EQ(Told(port, dial), "") << "heard from somebody who listened";
  EXPECT_EQ(Told(port, DialMessage({8, round.secret}, "m1")), "") << "of another round";
  EXPECT_EQ(Told(port, DialMessage(round, "m2")), "") << "means another host";
}

TEST(PairDoor, ClosesOnceAllHaveCome) {
  const auto door = PairDoor::Open(kHere);
  ASSERT_TRUE(door.ok()) << door.status();
  const PairRound round{7, NewSecret()};
  (*door)->Answer(round, "m1", 1, kPatienceMs);
  const std::vector<proto::CheckPeer> peers = {Peer((*door)->port())};
  EXPECT_THAT(DialPeers(round, peers, kPatienceMs), IsEmpty());
  bool closed = false;
  for (int tries = 0; tries < 100 && !closed; ++tries) {
    const auto unreached = DialPeers(round, peers, kPatienceMs);
    closed = unreached.size() == 1 && unreached[0].why().find("refused") != std::string::npos;
    usleep(10000);
  }
  EXPECT_TRUE(closed);
}

TEST(DialPeers, NamesWhoIsNotReachedAndWhy) {
  const Descriptor silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kHere, &address.sin_addr);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent.get(), 5), 0);
  getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto other = PairDoor::Open(kHere);
  ASSERT_TRUE(other.ok()) << other.status();
  const PairRound round{7, NewSecret()};
  (*other)->Answer({7, NewSecret()}, "m1", 1, kPatienceMs);
  const auto answered = DialPeers(round, {Peer((*other)->port()), Peer(1)}, kPatienceMs);
  ASSERT_EQ(answered.size(), 2u);
  EXPECT_THAT(answered[0].why(), HasSubstr("it hangs up"));
  EXPECT_THAT(answered[1].why(), HasSubstr("Connection refused"));
  const auto unreached =
      DialPeers(round, {Peer(ntohs(address.sin_port)), Peer((*other)->port(), "m2")}, 100);
  ASSERT_FALSE(unreached.empty());
  EXPECT_EQ(unreached[0].why(), "127.0.0.1: no answer within 100 ms");
  EXPECT_EQ(unreached[0].machine(), "m1");
}

}  // namespace
}  // namespace weft
