// Orders of real size reach an agent, whichever way it has dialled: a job of 50,000 data files and
// the commit of 60,000 shards are more than the 4 MiB that gRPC takes unless it is told.
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "process/authority.h"
#include "process/listener.h"
#include "process/rpc.h"
#include "process/tls.h"
#include "proto/agent.grpc.pb.h"

namespace weft {
namespace {

constexpr int64_t kPatienceMs = 30000;
constexpr size_t kUsualLimit = size_t{4} << 20;

proto::AgentOrder LaunchOfManyFiles() {
  proto::AgentOrder order;
  std::string& job = *order.mutable_launch()->mutable_job();
  for (int file = 0; file < 50000; ++file) {
    absl::StrAppend(&job, "data.train: {path: /shared/corpora/fineweb-edu/sample-350BT/part-",
                    100000 + file, "/tokens.bin, weight: 1}\n");
  }
  return order;
}

proto::AgentOrder CommitOfManyShards() {
  proto::Order commit;
  for (int shard = 0; shard < 60000; ++shard) {
    proto::ShardWritten& written = *commit.mutable_commit()->add_shards();
    written.set_step(100000);
    written.set_file(absl::StrCat("rank-", 100000 + shard, ".safetensors"));
    written.set_bytes(int64_t{1} << 31);
    written.set_xxh3("0123456789abcdef0123456789abcdef");
    written.set_number(7);
  }
  proto::AgentOrder order;
  order.mutable_to_ranks()->add_streams(1);
  commit.SerializeToString(order.mutable_to_ranks()->mutable_order());
  return order;
}

// Sends both to whoever says hello, and takes what comes back.
class Coordinator final : public proto::AgentLink::Service {
 public:
  grpc::Status Attach(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<proto::AgentOrder, proto::AgentReport>* stream) override {
    proto::AgentReport report;
    if (!stream->Read(&report)) return grpc::Status::CANCELLED;
    stream->Write(LaunchOfManyFiles());
    stream->Write(CommitOfManyShards());
    const bool answered = stream->Read(&report);
    return answered ? grpc::Status::OK : grpc::Status::CANCELLED;
  }
};

class LargeMessages : public ::testing::Test {
 protected:
  LargeMessages() {
    char folder[] = "/tmp/weft-large-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~LargeMessages() override {
    listener_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(folder_);
  }

  // As weftd's listeners are built.
  void Serve(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    if (credentials != nullptr) builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  static void ExpectBoth(const std::string& target, const BundleSource& bundle) {
    const auto channel = OpenChannel(target, bundle);
    ASSERT_TRUE(channel.ok()) << channel.status();
    const auto stub = proto::AgentLink::NewStub(*channel);
    grpc::ClientContext context;
    SetDeadline(context, kPatienceMs);
    const auto stream = stub->Attach(&context);
    proto::AgentReport report;
    report.mutable_hello()->set_host("h1");
    ASSERT_TRUE(stream->Write(report));
    proto::AgentOrder order;
    for (const proto::AgentOrder& sent : {LaunchOfManyFiles(), CommitOfManyShards()}) {
      ASSERT_GT(sent.ByteSizeLong(), kUsualLimit);
      ASSERT_LT(sent.ByteSizeLong(), static_cast<size_t>(kMaxMessageBytes));
      if (!stream->Read(&order)) break;  // the status says why
      EXPECT_EQ(order.ByteSizeLong(), sent.ByteSizeLong());
    }
    report.mutable_from_rank()->set_report(std::string(2 * kUsualLimit, 'x'));
    stream->Write(report);
    stream->WritesDone();
    EXPECT_EQ(FromGrpc(stream->Finish()), absl::OkStatus());
  }

  std::string folder_;
  Coordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
  int port_ = 0;
};

TEST_F(LargeMessages, ReachAnAgentOnThisHost) {
  Serve(nullptr);
  const std::string path = folder_ + "/socket";
  auto listener = Listener::Start(
      path, [this](int fd, uid_t) { grpc::AddInsecureChannelFromFd(server_.get(), fd); });
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_ = *std::move(listener);
  ExpectBoth("unix:" + path, {});
}

TEST_F(LargeMessages, ReachAnAgentOfAnotherHost) {
  const int64_t now_s = std::time(nullptr);
  const auto authority = Authority::Create(folder_ + "/ca", now_s);
  ASSERT_TRUE(authority.ok()) << authority.status();
  const std::string bundle = folder_ + "/server.pem";
  std::ofstream(bundle) << authority->Issue(BundleRole::kServer, {}, now_s).value();
  ASSERT_EQ(chmod(bundle.c_str(), 0600), 0);
  const auto credentials = ListenerCredentials(bundle, "");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  Serve(*credentials);
  BundleSource agent;
  agent.text = authority->Issue(BundleRole::kAgent, {"h1"}, now_s).value();
  ExpectBoth(absl::StrCat("127.0.0.1:", port_), agent);
}

}  // namespace
}  // namespace weft
