#include "process/rpc.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace weft {
namespace {

TEST(Rpc, EveryStatusCodeSurvivesTheWire) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status) << status;
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
  }
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
}

TEST(Rpc, UnixTargetRefusesWhatNoSocketCanBe) {
  EXPECT_EQ(UnixTarget("/run/weftd.sock").value(), "unix:/run/weftd.sock");
  EXPECT_EQ(UnixTarget("weftd.sock").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(UnixTarget("/" + std::string(106, 'a')).ok());
  const absl::Status longer = UnixTarget("/" + std::string(107, 'a')).status();
  EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(longer.message().find("108 bytes"), absl::string_view::npos) << longer;
}

TEST(Rpc, NeverSpeaksPlainTcp) {
  EXPECT_EQ(OpenChannel("localhost:1234").status().code(), absl::StatusCode::kInvalidArgument);
}

// A listener that answers late, as any does on a machine with more to do than cores. Only the first
// connection is ever answered: a channel that gives it up is never connected.
TEST(Rpc, WaitsForAListenerThatIsSlowToAnswer) {
  char folder[] = "/tmp/weft-rpc-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/socket";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 16), 0);

  grpc::ServerBuilder builder;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto channel = OpenChannel(UnixTarget(path).value()).value();
  channel->GetState(/*try_to_connect=*/true);
  const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  usleep(700000);
  grpc::AddInsecureChannelFromFd(server.get(), connection);
  EXPECT_TRUE(
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(5)));

  server->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) continue;
  close(listener);
  unlink(path.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace weft
