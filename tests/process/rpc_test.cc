#include "process/rpc.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

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
}

// A socket's address takes 107 bytes; a run folder may be as deep as people like.
TEST(Rpc, ReachesAListenerHoweverDeepItsFolderIs) {
  char base[] = "/tmp/weft-rpc-XXXXXX";
  ASSERT_NE(mkdtemp(base), nullptr);
  const std::string folder = std::string(base) + "/" + std::string(150, 'd');
  const std::string path = folder + "/weftd.sock";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  EXPECT_EQ(OpenChannel("unix:" + path).status().code(), absl::StatusCode::kUnavailable);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_TRUE(UseSocketPath(listener, path, SocketUse::kBind));
  ASSERT_EQ(listen(listener, 16), 0);
  EXPECT_TRUE(OpenChannel("unix:" + path).ok());
  close(listener);
  EXPECT_EQ(OpenChannel("unix:" + path).status().code(), absl::StatusCode::kUnavailable);
  unlink(path.c_str());
  rmdir(folder.c_str());
  rmdir(base);
}

// Whoever answers in weftd's place could give a launch an environment of its own.
TEST(Rpc, RefusesAListenerOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  char folder[] = "/tmp/weft-rpc-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ASSERT_EQ(chmod(folder, 0777), 0);
  const std::string path = std::string(folder) + "/socket";
  int ready[2];
  int over[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t other = fork();
  if (other == 0) {
    close(over[1]);
    const bool changed = setuid(65534) == 0;
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    const bool listens = changed && UseSocketPath(listener, path, SocketUse::kBind) &&
                         chmod(path.c_str(), 0777) == 0 && listen(listener, 16) == 0;
    char byte = listens ? 'y' : 'n';
    if (write(ready[1], &byte, 1) == 1 && read(over[0], &byte, 1) == 0) _exit(0);
    _exit(1);
  }
  close(over[0]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  EXPECT_EQ(OpenChannel("unix:" + path).status().code(), absl::StatusCode::kPermissionDenied);
  // A service is believed where nobody else could listen.
  const auto believed = [&] { return OpenChannel("unix:" + path, {}, Listens::kService).ok(); };
  EXPECT_FALSE(believed());
  ASSERT_EQ(chown(folder, 65534, 65534), 0);
  EXPECT_FALSE(believed());
  ASSERT_EQ(chmod(folder, 0755), 0);
  EXPECT_TRUE(believed());
  EXPECT_EQ(OpenChannel("unix:" + path).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chown(folder, 65533, 65533), 0);
  EXPECT_FALSE(believed());
  close(over[1]);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(waitpid(other, nullptr, 0), other);
  unlink(path.c_str());
  rmdir(folder);
}

TEST(Rpc, NeverSpeaksPlainTcp) {
  EXPECT_EQ(OpenChannel("localhost:1234").status().code(), absl::StatusCode::kInvalidArgument);
}

// A listener that answers late, as any does on a machine with more to do than cores: a call waits
// for it as long as its own deadline says.
TEST(Rpc, WaitsForAListenerThatIsSlowToAnswer) {
  char folder[] = "/tmp/weft-rpc-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/socket";
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_TRUE(UseSocketPath(listener, path, SocketUse::kBind));
  ASSERT_EQ(listen(listener, 16), 0);

  grpc::ServerBuilder builder;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto channel = OpenChannel(UnixTarget(path).value()).value();
  const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  std::thread late([&] {
    usleep(700000);
    grpc::AddInsecureChannelFromFd(server.get(), connection);
    void* tag = nullptr;
    bool ok = false;
    while (queue->Next(&tag, &ok)) continue;
  });
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetDeadline(context, 60000);
  grpc::CompletionQueue answers;
  grpc::ByteBuffer answer;
  grpc::Status status;
  const auto call =
      stub.PrepareUnaryCall(&context, "/weft.Nothing/Ask", grpc::ByteBuffer(), &answers);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(answers.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();

  server->Shutdown();
  queue->Shutdown();
  late.join();
  close(listener);
  unlink(path.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace weft
