// The door of the network over real TLS on loopback: who is let in, who is not, and that the latter
// are not told one byte.
#include "coordinator/tls_door.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "coordinator/driver.h"
#include "coordinator/journal.h"
#include "coordinator/service/run_service.h"
#include "coordinator/service/serve.h"
#include "process/authority.h"
#include "process/rpc.h"
#include "process/tls.h"
#include "process/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPatienceMs = 60000;
constexpr int64_t kDayS = 86400;

void WritePrivate(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  chmod((path + ".new").c_str(), 0600);
  std::filesystem::rename(path + ".new", path);
}

// How a client of OpenSSL introduces itself.
struct Stranger {
  std::string bundle = {};  // empty: shows no certificate
  int newest_version = TLS1_3_VERSION;
  std::string suites_of_tls12 = "ALL:@SECLEVEL=0";
};

// One connection of somebody who is not gRPC: what came back.
struct HeardOverTls {
  int64_t bytes_of_application = 0;
  std::string version;
  std::string suite;
};

int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

HeardOverTls Speak(int port, const Stranger& stranger) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context, stranger.newest_version);
  SSL_CTX_set_cipher_list(context, stranger.suites_of_tls12.c_str());
  const unsigned char alpn[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context, alpn, sizeof(alpn));
  if (!stranger.bundle.empty()) {
    BIO* bio = BIO_new_mem_buf(stranger.bundle.data(), -1);
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    SSL_CTX_use_certificate(context, certificate);
    SSL_CTX_use_PrivateKey(context, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
    BIO_free(bio);
  }
  SSL* ssl = SSL_new(context);
  const int fd = ConnectTo(port);
  SSL_set_fd(ssl, fd);
  HeardOverTls heard;
  if (SSL_connect(ssl) == 1) {
    heard.version = SSL_get_version(ssl);
    heard.suite = SSL_get_cipher_name(ssl);
    char bytes[256];
    heard.bytes_of_application = std::max(0, SSL_read(ssl, bytes, sizeof(bytes)));
  }
  ERR_clear_error();
  SSL_free(ssl);
  SSL_CTX_free(context);
  close(fd);
  return heard;
}

class TlsDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/weft-tls-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    authority_ = std::make_unique<Authority>(Authority::Create(folder_ + "/ca", now_s_).value());
    bundle_ = folder_ + "/server.pem";
    WritePrivate(bundle_, authority_->Issue(BundleRole::kServer, {}, now_s_).value());
    DriverOptions options;
    options.version = Version();
    driver_ =
        Driver::Start(Journal::Open(folder_ + "/journal.db").value(), std::move(options)).value();
    absl::StatusOr<std::unique_ptr<RunService>> service =
        RunService::Start(folder_ + "/socket", Version(), *driver_, Network());
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    ASSERT_GT(port(), 0);
  }
  void TearDown() override {
    service_.reset();
    driver_.reset();
    std::filesystem::remove_all(folder_);
  }

  TlsDoorOptions Network() const {
    return {.address = "127.0.0.1:0",
            .bundle_file = bundle_,
            .revoked_file = authority_->revoked_file()};
  }
  int port() const { return service_->network_port(); }
  std::string target() const { return AddressText({"127.0.0.1", port()}); }
  std::string AgentBundle(const std::string& name = "h2") const {
    return authority_->Issue(BundleRole::kAgent, {name}, now_s_).value();
  }

  // Says Hello on a stream of its own; OK if the coordinator welcomes it.
  static absl::Status SayHello(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = proto::AgentLink::NewStub(channel);
    grpc::ClientContext context;
    SetDeadline(context, kPatienceMs);
    const auto stream = stub->Attach(&context);
    proto::AgentReport hello;
    hello.mutable_hello()->set_version(Version());
    hello.mutable_hello()->set_wire_version(kWireVersion);
    hello.mutable_hello()->set_host("h2");
    hello.mutable_hello()->set_machine("machine-2");
    proto::AgentOrder order;
    const bool welcome = stream->Write(hello) && stream->Read(&order) && order.has_welcome();
    if (welcome) context.TryCancel();
    while (stream->Read(&order)) continue;
    const absl::Status status = FromGrpc(stream->Finish());
    return welcome ? absl::OkStatus() : status;
  }
  absl::Status SayHelloWith(const std::string& bundle) const {
    const auto channel = OpenChannel(target(), {.text = bundle});
    return channel.ok() ? SayHello(*channel) : channel.status();
  }

  const int64_t now_s_ = std::time(nullptr);
  std::string folder_;
  std::string bundle_;
  std::unique_ptr<Authority> authority_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<RunService> service_;
};

TEST_F(TlsDoorTest, WelcomesAnAgentWhoseBundleTheAuthorityIssued) {
  EXPECT_EQ(SayHelloWith(AgentBundle()), absl::OkStatus());
  // The witness of the tests below: this is what somebody hears who is let in.
  const HeardOverTls heard = Speak(port(), {.bundle = AgentBundle()});
  EXPECT_GT(heard.bytes_of_application, 0);
  EXPECT_EQ(heard.version, "TLSv1.3");
  const HeardOverTls older =
      Speak(port(), {.bundle = AgentBundle(), .newest_version = TLS1_2_VERSION});
  EXPECT_GT(older.bytes_of_application, 0);
  EXPECT_EQ(older.version, "TLSv1.2");
  EXPECT_THAT(older.suite, ::testing::AnyOf(HasSubstr("GCM"), HasSubstr("CHACHA20")));
}

TEST_F(TlsDoorTest, TellsNobodyElseAByte) {
  const Authority foreign = Authority::Create(folder_ + "/foreign", now_s_).value();
  const std::string revoked = AgentBundle("h3");
  ASSERT_EQ(authority_->Revoke("h3").value(), 1);
  struct Case {
    const char* who;
    Stranger stranger;
  };
  const Case cases[] = {
      {"no certificate", {}},
      {"no certificate, TLS 1.2", {.newest_version = TLS1_2_VERSION}},
      {"another authority's",
       {.bundle = foreign.Issue(BundleRole::kAgent, {"h2"}, now_s_).value()}},
      {"one that has ended",
       {.bundle = authority_->Issue(BundleRole::kAgent, {"h2"}, now_s_ - 91 * kDayS).value()}},
      {"one that begins tomorrow",
       {.bundle =
            authority_->Issue(BundleRole::kAgent, {"h2"}, now_s_ + kDayS + kClockSkewS).value()}},
      {"a revoked one", {.bundle = revoked}},
      {"a server's", {.bundle = authority_->Issue(BundleRole::kServer, {}, now_s_).value()}},
      {"TLS 1.1", {.bundle = AgentBundle(), .newest_version = TLS1_1_VERSION}},
      {"suites without AEAD",
       {.bundle = AgentBundle(),
        .newest_version = TLS1_2_VERSION,
        .suites_of_tls12 = "ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"}}};
  for (const Case& each : cases) {
    EXPECT_EQ(Speak(port(), each.stranger).bytes_of_application, 0) << each.who;
  }
}

TEST_F(TlsDoorTest, AnswersPlainTextWithNothing) {
  for (const std::string& text : {std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\0')}) {
    const int fd = ConnectTo(port());
    EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    char byte = 0;
    EXPECT_LE(recv(fd, &byte, 1, 0), 0) << text;
    close(fd);
  }
}

TEST_F(TlsDoorTest, IsNoDoorForPeople) {
  const auto channel = OpenChannel(target(), {.text = AgentBundle()}).value();
  const auto control = v1::Control::NewStub(channel);
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  v1::VersionReply reply;
  EXPECT_EQ(control->Version(&context, {}, &reply).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(TlsDoorTest, EndsNewStreamsOfAConnectionWhoseCertificateWasRevoked) {
  const auto channel = OpenChannel(target(), {.text = AgentBundle()}).value();
  ASSERT_EQ(SayHello(channel), absl::OkStatus());
  ASSERT_EQ(authority_->Revoke("h2").value(), 1);
  const absl::Status status = SayHello(channel);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of h2"));
}

TEST_F(TlsDoorTest, GrantsNoFurtherLeaseOnceTheCertificateIsRevoked) {
  const auto channel = OpenChannel(target(), {.text = AgentBundle()}).value();
  const auto stub = proto::AgentLink::NewStub(channel);
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  const auto stream = stub->Attach(&context);
  proto::AgentReport report;
  report.mutable_hello()->set_version(Version());
  report.mutable_hello()->set_wire_version(kWireVersion);
  report.mutable_hello()->set_host("h2");
  report.mutable_hello()->set_machine("machine-2");
  proto::AgentOrder order;
  ASSERT_TRUE(stream->Write(report));
  while (stream->Read(&order) && !order.has_lease()) continue;
  report.mutable_heartbeat()->set_sent_boot_ms(1);
  ASSERT_TRUE(stream->Write(report));
  ASSERT_TRUE(stream->Read(&order));
  EXPECT_EQ(order.lease().sent_boot_ms(), 1);
  ASSERT_EQ(authority_->Revoke("h2").value(), 1);
  report.mutable_heartbeat()->set_sent_boot_ms(2);
  ASSERT_TRUE(stream->Write(report));
  while (stream->Read(&order)) EXPECT_NE(order.lease().sent_boot_ms(), 2);
  const absl::Status status = FromGrpc(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("was revoked"));
}

// Whoever stole an agent's bundle could open a listener where agents dial.
TEST_F(TlsDoorTest, IsNotBelievedWithTheBundleOfAnAgent) {
  WritePrivate(folder_ + "/stolen.pem", AgentBundle("weftd"));
  proto::AgentLink::CallbackService agents;
  const auto impostor =
      TlsDoor::Open({.address = "127.0.0.1:0", .bundle_file = folder_ + "/stolen.pem"}, {&agents});
  ASSERT_TRUE(impostor.ok()) << impostor.status();
  const auto channel =
      OpenChannel(AddressText({"127.0.0.1", (*impostor)->port()}), {.text = AgentBundle()});
  EXPECT_EQ(SayHello(channel.value()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsDoorTest, TakesARenewedBundleWithoutARestart) {
  const Authority next = Authority::Create(folder_ + "/next", now_s_).value();
  const std::string agent = next.Issue(BundleRole::kAgent, {"h2"}, now_s_).value();
  EXPECT_NE(SayHelloWith(agent), absl::OkStatus());
  WritePrivate(bundle_, next.Issue(BundleRole::kServer, {}, now_s_).value());
  absl::Status status = absl::UnknownError("not asked");
  for (int i = 0; i < 100 && !status.ok(); ++i) {
    usleep(100000);
    status = SayHelloWith(agent);
  }
  EXPECT_EQ(status, absl::OkStatus());
}

TEST_F(TlsDoorTest, SaysWhatItCannotBeOpenedWith) {
  proto::AgentLink::CallbackService agents;
  TlsDoorOptions options = Network();
  options.address = target();
  EXPECT_EQ(TlsDoor::Open(options, {&agents}).status().code(), absl::StatusCode::kUnavailable)
      << "the port is taken";
  options.address = "192.0.2.1:0";
  EXPECT_EQ(TlsDoor::Open(options, {&agents}).status().code(), absl::StatusCode::kUnavailable)
      << "no address of this host";
  options = Network();
  options.bundle_file = folder_ + "/none.pem";
  EXPECT_EQ(TlsDoor::Open(options, {&agents}).status().code(), absl::StatusCode::kNotFound);
  WritePrivate(bundle_, authority_->Issue(BundleRole::kServer, {}, now_s_ - 91 * kDayS).value());
  EXPECT_THAT(std::string(TlsDoor::Open(Network(), {&agents}).status().message()),
              HasSubstr("weftd issue"));
}

TEST_F(TlsDoorTest, OpensNothingUnderSuitesOfSomebodyElse) {
  setenv("GRPC_SSL_CIPHER_SUITES", "ECDHE-ECDSA-AES128-SHA256", 1);
  proto::AgentLink::CallbackService agents;
  EXPECT_EQ(TlsDoor::Open(Network(), {&agents}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  unsetenv("GRPC_SSL_CIPHER_SUITES");
}

TEST(Peer, IsTheHostOfItsCertificate) {
  EXPECT_TRUE(CheckPeerIs(std::nullopt, "h2").ok()) << "a unix socket";
  EXPECT_TRUE(CheckPeerIs("h2", "h2").ok());
  EXPECT_EQ(CheckPeerIs("h3", "h2").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckPeerIs("", "h2").code(), absl::StatusCode::kPermissionDenied);
}

// One job's weftd and that of many jobs have the same doors.
TEST(ServeOptions, NeverListenOnTheNetworkWithoutTls) {
  for (ServeOptions options : {ServeOptions{.socket = "/tmp/s", .journal = "/tmp/j"},
                               ServeOptions{.socket = "/tmp/s", .state = "/tmp/state"}}) {
    EXPECT_TRUE(CheckServeOptions(options).ok());
    options.bundle = "server.pem";
    EXPECT_FALSE(CheckServeOptions(options).ok()) << "a bundle and no listener";
    options.listen = "0.0.0.0:7800";
    EXPECT_TRUE(CheckServeOptions(options).ok());
    options.bundle.clear();
    for (const char* listen : {"0.0.0.0:7800", "127.0.0.1:0", "nonsense"}) {
      options.listen = listen;
      EXPECT_EQ(CheckServeOptions(options).code(), absl::StatusCode::kInvalidArgument) << listen;
    }
  }
}

}  // namespace
}  // namespace weft
