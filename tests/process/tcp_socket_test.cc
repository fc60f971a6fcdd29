#include "process/tcp_socket.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weft {
namespace {

using testing::HasSubstr;

TEST(TcpSocket, ListensAtAFreePortAndAloneThere) {
  const absl::StatusOr<int> first = ListenAt({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = PortOf(*first);
  EXPECT_GT(port, 0);
  const absl::StatusOr<int> second = ListenAt({"127.0.0.1", port});
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
  close(*first);
  const absl::StatusOr<int> third = ListenAt({"127.0.0.1", port});
  EXPECT_TRUE(third.ok()) << third.status();
  if (third.ok()) close(*third);
}

TEST(TcpSocket, RefusesAnAddressOfAnotherHostAndANameOfNone) {
  for (const char* host : {"192.0.2.1", "nobody.invalid"}) {
    const absl::StatusOr<int> refused = ListenAt({host, 0});
    EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(host));
  }
}

// Whoever has connected by IPv4 has an address of it, be the listener one of IPv6.
TEST(TcpSocket, SaysWhoHasConnected) {
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    const absl::StatusOr<int> listener = ListenAt({host, 0});
    ASSERT_TRUE(listener.ok()) << listener.status();
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(PortOf(*listener)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int dialed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(dialed, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << host;
    const int accepted = accept(*listener, nullptr, nullptr);
    ASSERT_GE(accepted, 0);
    EXPECT_EQ(PeerAddress(accepted), "127.0.0.1") << host;
    for (const int each : {dialed, accepted, *listener}) close(each);
  }
  EXPECT_EQ(PeerAddress(-1), "unknown");
}

}  // namespace
}  // namespace weft
