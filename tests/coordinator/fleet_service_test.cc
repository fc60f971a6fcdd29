// The doors of a weftd that serves many jobs: who is let in, with what, and what bad callers get.
#include "coordinator/service/fleet_service.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "coordinator/open_connections.h"
#include "process/authority.h"
#include "process/clock.h"
#include "process/rpc.h"
#include "proto/agent.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kDayS = 24 * 3600;
constexpr int kCallsPerS = 200;
constexpr int kStreams = 3;
constexpr int kConnections = 60;  // of one user, one certificate, one address without any
// For what comes at once: it only ends a test that has failed.
constexpr int64_t kCallMs = 60000;

class FleetServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-doors-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    authority_.emplace(Authority::Create(folder_ + "/ca", now_s_).value());
    const std::string bundle = folder_ + "/server.pem";
    std::ofstream(bundle) << authority_->Issue(BundleRole::kServer, {}, now_s_).value();
    chmod(bundle.c_str(), 0600);
    fleet_ = FleetDriver::Start({.version = "test", .state_folder = folder_ + "/state"}).value();
    service_ =
        FleetService::Start({.socket = folder_ + "/s",
                             .version = "test",
                             .network = TlsDoorOptions{.address = "127.0.0.1:0",
                                                       .bundle_file = bundle,
                                                       .revoked_file = authority_->revoked_file()},
                             .limits = {.calls_per_s = kCallsPerS,
                                        .streams = kStreams,
                                        .connections = kConnections},
                             .now_ms = [this] { return stands_ ? begin_ms_ : BootTimeMs(); }},
                            *fleet_)
            .value();
  }
  void TearDown() override {
    service_.reset();
    fleet_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Issue(BundleRole role, const std::string& name, int64_t days_ago = 0) const {
    return authority_->Issue(role, {name}, now_s_ - days_ago * kDayS).value();
  }
  std::shared_ptr<grpc::Channel> Dial(const std::string& bundle) const {
    return OpenChannel(AddressText({"127.0.0.1", service_->network_port()}), {.text = bundle})
        .value();
  }
  std::shared_ptr<grpc::Channel> OnSocket() const {
    return OpenChannel("unix:" + folder_ + "/s").value();
  }

  static absl::Status Look(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context, kCallMs);
    v1::ListReply reply;
    return FromGrpc(v1::Control::NewStub(channel)->List(&context, {}, &reply));
  }
  // DeadlineExceeded: the stream was let in, and tells nothing.
  static absl::Status Watch(const std::shared_ptr<grpc::Channel>& channel, int64_t timeout_ms) {
    grpc::ClientContext context;
    SetDeadline(context, timeout_ms);
    const auto stub = v1::Control::NewStub(channel);
    const auto reader = stub->Watch(&context, {});
    v1::WatchReply reply;
    while (reader->Read(&reply)) {
    }
    return FromGrpc(reader->Finish());
  }
  static absl::Status Drain(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context, kCallMs);
    v1::DrainHostRequest request;
    request.set_request_id("drain");
    request.set_host("h1");
    v1::Host reply;
    return FromGrpc(v1::Control::NewStub(channel)->DrainHost(&context, request, &reply));
  }
  static absl::Status Submit(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context, kCallMs);
    v1::SubmitRequest request;
    request.set_request_id("submit");
    request.mutable_submission()->set_job("{}");
    v1::SubmitReply reply;
    return FromGrpc(v1::Control::NewStub(channel)->Submit(&context, request, &reply));
  }
  static absl::Status OfferHost(const std::shared_ptr<grpc::Channel>& channel,
                                const std::string& host) {
    grpc::ClientContext context;
    SetDeadline(context, kCallMs);
    const auto stub = proto::FleetLink::NewStub(channel);
    const auto stream = stub->Offer(&context);
    proto::OfferReport report;
    report.mutable_offer()->set_wire_version(1);
    report.mutable_offer()->set_host(host);
    report.mutable_offer()->set_machine("m-" + host);
    report.mutable_offer()->set_slots(2);
    stream->Write(report);
    proto::OfferOrder order;
    if (stream->Read(&order) && order.has_welcome()) {
      context.TryCancel();
      stream->Finish();
      return absl::OkStatus();
    }
    return FromGrpc(stream->Finish());
  }
  static absl::Status AttachAgent(const std::shared_ptr<grpc::Channel>& channel,
                                  const std::string& host) {
    grpc::ClientContext context;
    SetDeadline(context, kCallMs);
    const auto stub = proto::AgentLink::NewStub(channel);
    const auto stream = stub->Attach(&context);
    proto::AgentReport report;
    report.mutable_hello()->set_host(host);
    report.mutable_hello()->set_machine("m");
    stream->Write(report);
    proto::AgentOrder order;
    while (stream->Read(&order)) {
    }
    return FromGrpc(stream->Finish());
  }

  const int64_t now_s_ = std::time(nullptr);
  const int64_t begin_ms_ = BootTimeMs();
  std::atomic<bool> stands_ = false;  // the clock that calls are counted by
  std::string folder_;
  std::optional<Authority> authority_;
  std::unique_ptr<FleetDriver> fleet_;
  std::unique_ptr<FleetService> service_;
};

TEST_F(FleetServiceTest, LetsEachRoleDoItsOwnAndNoMore) {
  struct Case {
    BundleRole role;
    bool looks, submits, drains, offers;
  };
  for (const Case& each : {Case{BundleRole::kViewer, true, false, false, false},
                           Case{BundleRole::kSubmitter, true, true, false, false},
                           Case{BundleRole::kOperator, true, true, true, false},
                           Case{BundleRole::kAgent, false, false, false, true},
                           Case{BundleRole::kServer, false, false, false, false}}) {
    SCOPED_TRACE(RoleName(each.role));
    const auto channel = Dial(Issue(each.role, "ann"));
    // A server's certificate is for no client: TLS itself refuses it.
    if (each.role == BundleRole::kServer) {
      EXPECT_EQ(Look(channel).code(), absl::StatusCode::kUnavailable);
      continue;
    }
    const auto denied = absl::StatusCode::kPermissionDenied;
    EXPECT_EQ(Look(channel).code(), each.looks ? absl::StatusCode::kOk : denied);
    EXPECT_EQ(Watch(channel, each.looks ? 500 : kCallMs).code(),
              each.looks ? absl::StatusCode::kDeadlineExceeded : denied);
    EXPECT_EQ(Submit(channel).code(), each.submits ? absl::StatusCode::kInvalidArgument : denied);
    EXPECT_EQ(Drain(channel).code(), each.drains ? absl::StatusCode::kNotFound : denied);
    EXPECT_EQ(OfferHost(channel, "ann").code(), each.offers ? absl::StatusCode::kOk : denied);
    EXPECT_EQ(AttachAgent(channel, "ann").code(),
              each.offers ? absl::StatusCode::kAborted : absl::StatusCode::kPermissionDenied);
  }
}

// A second machine, or a wrong offer, comes on a stream that has offered a machine before.
TEST_F(FleetServiceTest, AnAgentThatOffersAnewIsTurnedAwayAndLeavesNothingBehind) {
  int64_t id = 1000;
  for (const auto& [machine, slots] :
       std::vector<std::pair<std::string, int>>{{"b", 1}, {"a", 0}}) {
    const auto offer = [&](const std::string& of, int so_many) {
      proto::OfferReport report;
      report.mutable_offer()->set_wire_version(kWireVersion);
      report.mutable_offer()->set_host("host");
      report.mutable_offer()->set_machine(of);
      report.mutable_offer()->set_slots(so_many);
      return report;
    };
    std::promise<absl::Status> turned_away;
    fleet_->AttachOffer(++id,
                        {.send = [](const proto::OfferOrder&) {},
                         .close = [&](const absl::Status& why) { turned_away.set_value(why); }});
    ASSERT_TRUE(fleet_->TakeOffer(id, offer("a", 1)));
    ASSERT_TRUE(fleet_->TakeOffer(id, offer(machine, slots)));
    EXPECT_TRUE(absl::IsInvalidArgument(turned_away.get_future().get()));
    fleet_->DetachOffer(id);
    std::promise<void> welcome;
    fleet_->AttachOffer(++id, {.send =
                                   [&](const proto::OfferOrder& order) {
                                     if (order.has_welcome()) welcome.set_value();
                                   },
                               .close = [](const absl::Status&) {}});
    ASSERT_TRUE(fleet_->TakeOffer(id, offer("a", 1)));
    welcome.get_future().get();
    fleet_->DetachOffer(id);
  }
}

TEST_F(FleetServiceTest, AnAgentOffersTheHostOfItsCertificateAlone) {
  const auto channel = Dial(Issue(BundleRole::kAgent, "h1"));
  EXPECT_EQ(OfferHost(channel, "h1"), absl::OkStatus());
  EXPECT_THAT(OfferHost(channel, "h2").ToString(), HasSubstr("the certificate is of h1"));
  // Its host has no part of any job: the right name alone is not enough.
  EXPECT_EQ(AttachAgent(channel, "h1").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(AttachAgent(channel, "h2").code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(FleetServiceTest, RefusesCertificatesThatHaveEndedOrWereRevokedOrAreStrange) {
  EXPECT_EQ(Look(Dial(Issue(BundleRole::kOperator, "ann"))), absl::OkStatus());
  const Authority foreign = Authority::Create(folder_ + "/foreign", now_s_).value();
  const TlsBundle strange =
      ParseBundle(foreign.Issue(BundleRole::kOperator, {"ann"}, now_s_).value(), "x").value();
  EXPECT_EQ(Look(Dial(BundleText(strange))).code(), absl::StatusCode::kUnavailable);
  const auto open = Dial(Issue(BundleRole::kOperator, "eve"));
  EXPECT_EQ(Look(open), absl::OkStatus());
  ASSERT_TRUE(authority_->Revoke("eve").ok());
  EXPECT_EQ(Look(open).code(), absl::StatusCode::kPermissionDenied)
      << "on a connection that was made before";
  EXPECT_EQ(Look(Dial(Issue(BundleRole::kOperator, "ann"))), absl::OkStatus());
  EXPECT_FALSE(OpenChannel("127.0.0.1:1", {.text = Issue(BundleRole::kOperator, "ann", 91)}).ok())
      << "one that has ended is not even shown";
}

TEST_F(FleetServiceTest, OutlivesGarbagePlaintextAndHalfOpenConnections) {
  const auto plain = grpc::CreateChannel(AddressText({"127.0.0.1", service_->network_port()}),
                                         grpc::InsecureChannelCredentials());
  EXPECT_EQ(Look(plain).code(), absl::StatusCode::kUnavailable);
  std::vector<int> half_open;
  for (int i = 0; i < 50; ++i) {
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_TRUE(UseSocketPath(connection, folder_ + "/s", SocketUse::kConnect));
    const std::string garbage(static_cast<size_t>(i) * 100, static_cast<char>(i * 37));
    if (!garbage.empty()) send(connection, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    half_open.push_back(connection);
  }
  EXPECT_EQ(Look(OnSocket()), absl::OkStatus());
  for (const int each : half_open) close(each);
  EXPECT_EQ(Look(OnSocket()), absl::OkStatus());
}

// A connection that was there before stays served, and so are all other users.
TEST_F(FleetServiceTest, ClosesConnectionsOfWhoHasTooManyOpen) {
  const std::shared_ptr<grpc::Channel> before = OnSocket();
  ASSERT_EQ(Look(before), absl::OkStatus());
  const auto dial = [&] {
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_TRUE(UseSocketPath(connection, folder_ + "/s", SocketUse::kConnect));
    return connection;
  };
  std::vector<int> open;
  for (int i = 1; i < kConnections; ++i) open.push_back(dial());
  for (int i = 0; i < 3 * kConnections; ++i) {
    const int refused = dial();
    char byte = 0;
    pollfd ready = {refused, POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, kCallMs), 1) << "it was let in, the " << i << "th too many";
    // A server that lets one in says its HTTP/2 settings first.
    EXPECT_LE(read(refused, &byte, 1), 0);
    close(refused);
  }
  EXPECT_FALSE(Look(OnSocket()).ok());
  EXPECT_EQ(Look(before), absl::OkStatus());
  EXPECT_EQ(Look(Dial(Issue(BundleRole::kViewer, "ann"))), absl::OkStatus());
  for (const int each : open) close(each);
  absl::Status again;
  for (int looks = 0; looks < 100 && !(again = Look(OnSocket())).ok(); ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(again, absl::OkStatus()) << "closed ones are still counted";
}

// Returns a connection from `source` to the port of this host, or -1.
int DialFrom(const char* source, int port) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in from = {}, to = {};
  from.sin_family = to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, source, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const bool dialed =
      bind(connection, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0 &&
      connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  if (dialed) return connection;
  close(connection);
  return -1;
}

// A server of TLS says nothing first: one that is let in hears nothing.
bool IsClosedWithin(int connection, int timeout_ms) {
  char byte = 0;
  pollfd ready = {connection, POLLIN, 0};
  return poll(&ready, 1, timeout_ms) == 1 && read(connection, &byte, 1) <= 0;
}

TEST_F(FleetServiceTest, ClosesConnectionsOfAnAddressThatHasTooManyOpen) {
  const int port = service_->network_port();
  const std::string ann = Issue(BundleRole::kViewer, "ann");
  const std::shared_ptr<grpc::Channel> before = Dial(ann);
  ASSERT_EQ(Look(before), absl::OkStatus());
  std::vector<int> open;
  for (int i = 0; i < kConnections; ++i) open.push_back(DialFrom("127.0.0.1", port));
  for (int i = 0; i < 2 * kConnections; ++i) {
    const int refused = DialFrom("127.0.0.1", port);
    ASSERT_TRUE(IsClosedWithin(refused, kCallMs)) << "it was let in, the " << i << "th too many";
    close(refused);
  }
  EXPECT_EQ(Look(before), absl::OkStatus());
  EXPECT_EQ(Look(OnSocket()), absl::OkStatus());
  const int other = DialFrom("127.0.0.2", port);
  EXPECT_FALSE(IsClosedWithin(other, 300)) << "another address";
  open.push_back(other);
  for (const int each : open) close(each);
  absl::Status again;
  for (int looks = 0; looks < 100 && !(again = Look(Dial(ann))).ok(); ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(again, absl::OkStatus()) << "closed ones are still counted";
}

// Hosts behind one address are many, and each has a certificate.
TEST_F(FleetServiceTest, ConnectionsThatShowedACertificateDoNotCountForTheirAddress) {
  const std::string ann = Issue(BundleRole::kViewer, "ann");
  const std::string bob = Issue(BundleRole::kSubmitter, "bob");
  std::vector<std::shared_ptr<grpc::Channel>> shown;
  for (int i = 0; i < kConnections; ++i) {
    for (const std::string& bundle : {ann, bob}) {
      shown.push_back(Dial(bundle));
      ASSERT_EQ(Look(shown.back()), absl::OkStatus()) << "the " << shown.size() << "th";
    }
  }
  const int port = service_->network_port();
  std::vector<int> silent;
  for (int i = 0; i < kConnections; ++i) {
    silent.push_back(DialFrom("127.0.0.1", port));
    EXPECT_FALSE(IsClosedWithin(silent.back(), i == 0 ? 300 : 0)) << "the " << i << "th";
  }
  const int one_more = DialFrom("127.0.0.1", port);
  EXPECT_TRUE(IsClosedWithin(one_more, kCallMs));
  for (const auto& each : shown) EXPECT_EQ(Look(each), absl::OkStatus());
  for (const int each : silent) close(each);
  close(one_more);
  EXPECT_FALSE(Look(Dial(ann)).ok()) << "one certificate has so many, too";
  EXPECT_EQ(Look(shown.front()), absl::OkStatus());
}

TEST_F(FleetServiceTest, AFailedHandshakeIsLoggedOnceWithTheAddressOfThePeer) {
  testing::internal::CaptureStderr();
  const int connection = DialFrom("127.0.0.1", service_->network_port());
  sockaddr_in own = {};
  socklen_t size = sizeof own;
  ASSERT_EQ(getsockname(connection, reinterpret_cast<sockaddr*>(&own), &size), 0);
  const std::string peer = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n";
  EXPECT_GT(send(connection, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosedWithin(connection, kCallMs));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // it is looked for each second
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("TLS failed: the connection of " + peer + " has ended before"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  close(connection);
}

TEST(OpenConnections, CountsEachPeerAndForgetsWhatIsClosed) {
  OpenConnections connections(2);
  const auto made = [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); };
  const auto take = [&](const std::string& peer, int connection) {
    return connections.Take(peer, connection, 1000);
  };
  const int first = made(), second = made(), third = made();
  EXPECT_TRUE(take("ann", first));
  EXPECT_TRUE(take("ann", second));
  EXPECT_TRUE(take("bob", third)) << "another peer";
  const int fourth = made();
  EXPECT_FALSE(take("ann", fourth));
  EXPECT_EQ(fcntl(fourth, F_GETFD), -1) << "it is closed";
  close(first);
  const int reused = made();
  EXPECT_EQ(reused, first) << "the kernel gives the lowest number";
  EXPECT_TRUE(take("ann", reused));
  EXPECT_FALSE(take("ann", made()));
  for (const int each : {reused, second, third}) close(each);
}

// Half of the thousand and more that have come and gone are looked for no more.
TEST(OpenConnections, ForgetsAddressesThatAreGone) {
  OpenConnections connections(1);
  for (int i = 0; i < 5000; ++i) {
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_TRUE(connections.Take("10.0.0." + std::to_string(i), made, i));
    close(made);
  }
  EXPECT_LE(connections.peers(), 1000u);
}

// A caller counts once, however many connections it has and by whichever door it comes. The doors'
// clock stands still, so that it does not matter how many calls a machine makes in a second.
TEST_F(FleetServiceTest, RefusesWhoCallsTooOftenAndNobodyElse) {
  stands_ = true;
  const std::string ann = Issue(BundleRole::kViewer, "ann");
  const std::string bob = Issue(BundleRole::kViewer, "bob");
  absl::Status refused;
  int calls = 0;
  for (int connection = 0; connection < 4 && refused.ok(); ++connection) {
    const std::shared_ptr<grpc::Channel> channel = Dial(ann);
    for (int i = 0; i < 150 && refused.ok(); ++i, ++calls) refused = Look(channel);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused << " after " << calls << " calls";
  EXPECT_THAT(refused.message(), HasSubstr("ann (viewer) makes more than 200 calls a second"));
  EXPECT_EQ(calls, 2 * kCallsPerS + 1);
  EXPECT_TRUE(Look(Dial(bob)).ok());
  EXPECT_TRUE(Look(OnSocket()).ok());
}

TEST_F(FleetServiceTest, RefusesWhoHasTooManyStreamsOpen) {
  const std::shared_ptr<grpc::Channel> channel = Dial(Issue(BundleRole::kViewer, "ann"));
  const auto stub = v1::Control::NewStub(channel);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchReply>>> readers;
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->Watch(contexts.back().get(), {}));
  }
  // The three are open once a fourth is refused.
  const auto is_refused = [&] { return absl::IsResourceExhausted(Watch(channel, 500)); };
  int looks = 0;
  while (!is_refused() && looks < 100) ++looks;
  EXPECT_LT(looks, 100);
  contexts[0]->TryCancel();
  readers[0]->Finish();
  looks = 0;
  for (; is_refused() && looks < 1000; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // fewer calls than are allowed
  }
  EXPECT_LT(looks, 1000) << "a closed one is still counted";
  for (int i = 1; i < kStreams; ++i) {
    contexts[static_cast<size_t>(i)]->TryCancel();
    readers[static_cast<size_t>(i)]->Finish();
  }
}

TEST_F(FleetServiceTest, RefusesAMessageThatIsTooLarge) {
  const auto channel = OnSocket();
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::SubmitRequest request;
  request.set_request_id("large");
  request.mutable_submission()->set_job(std::string(size_t{100} << 20, 'x'));
  v1::SubmitReply reply;
  EXPECT_EQ(FromGrpc(v1::Control::NewStub(channel)->Submit(&context, request, &reply)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Look(OnSocket()), absl::OkStatus());
}

TEST(SocketCaller, IsAnOperatorAsThisUserAndElseWhatItWasGiven) {
  const auto own = SocketCaller(geteuid(), {});
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->role, Role::kOperator);
  const int64_t other = geteuid() == 65534 ? 1 : 65534;
  EXPECT_FALSE(SocketCaller(other, {}).has_value());
  const auto guest = SocketCaller(other, {{UserName(other), Role::kViewer}});
  ASSERT_TRUE(guest.has_value());
  EXPECT_EQ(guest->role, Role::kViewer);
  EXPECT_EQ(guest->uid, other);
}

}  // namespace
}  // namespace weft
