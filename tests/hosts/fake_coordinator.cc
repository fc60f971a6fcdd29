#include "tests/hosts/fake_coordinator.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "proto/agent.grpc.pb.h"

namespace weft {
namespace {

constexpr int64_t kLeaseMs = 8000;
using Stream = grpc::ServerReaderWriter<proto::AgentOrder, proto::AgentReport>;

std::string TextOf(const proto::AgentReport& report) {
  if (report.has_rank_ended()) {
    const proto::Cause& cause = report.rank_ended().cause();
    return absl::StrCat("rank ", cause.rank(), " signal ", cause.signal(), " code ",
                        cause.exit_code(), " ", cause.message());
  }
  if (report.has_group_ended()) {
    return absl::StrCat("group ", report.group_ended().generation(), " ended",
                        report.group_ended().clean() ? " clean" : "");
  }
  if (report.has_daemon_wanted()) {
    return absl::StrCat("wants a daemon on ", report.daemon_wanted().host());
  }
  return "something else";
}

}  // namespace

class FakeCoordinator::Service final : public proto::AgentLink::Service {
 public:
  explicit Service(const std::string& socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Service() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override {
    proto::AgentReport report;
    if (!stream->Read(&report) || !report.has_hello()) return grpc::Status::CANCELLED;
    const std::string host = report.hello().host();
    {
      const std::lock_guard lock(mutex_);
      hellos_.push_back(report.hello());
      streams_[host] = stream;
      proto::AgentOrder welcome;
      welcome.mutable_welcome();
      stream->Write(welcome);
      stream->Write(Lease(report.hello().sent_boot_ms()));
    }
    while (stream->Read(&report)) {
      const std::lock_guard lock(mutex_);
      Take(host, report, *stream);
    }
    const std::lock_guard lock(mutex_);
    if (streams_[host] == stream) streams_.erase(host);
    return grpc::Status::OK;
  }

  void Send(const std::string& host, const proto::AgentOrder& order) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(host);
    if (found != streams_.end()) found->second->Write(order);
  }
  std::vector<proto::Hello> hellos() const {
    const std::lock_guard lock(mutex_);
    return hellos_;
  }
  std::vector<std::string> told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  static proto::AgentOrder Lease(int64_t sent_boot_ms) {
    proto::AgentOrder order;
    order.mutable_lease()->set_sent_boot_ms(sent_boot_ms);
    order.mutable_lease()->set_lease_ms(kLeaseMs);
    return order;
  }

  // REQUIRES: mutex_ held.
  void Take(const std::string& host, const proto::AgentReport& report, Stream& stream) {
    if (report.has_heartbeat()) {
      stream.Write(Lease(report.heartbeat().sent_boot_ms()));
      return;
    }
    told_.push_back(absl::StrCat(host, ": ", TextOf(report)));
    proto::AgentOrder acknowledged;
    acknowledged.set_acknowledged(report.sequence());
    stream.Write(acknowledged);
    const auto found = streams_.find(report.daemon_wanted().host());
    if (!report.has_daemon_wanted() || found == streams_.end()) return;
    proto::AgentOrder order;
    order.mutable_start_daemon()->set_generation(report.daemon_wanted().generation());
    *order.mutable_start_daemon()->mutable_args() = report.daemon_wanted().args();
    // An order may repeat.
    for (int i = 0; i < 2; ++i) found->second->Write(order);
  }

  mutable std::mutex mutex_;  // guards all below, and every write
  std::map<std::string, Stream*> streams_;
  std::vector<proto::Hello> hellos_;
  std::vector<std::string> told_;
  std::unique_ptr<grpc::Server> server_;
};

FakeCoordinator::FakeCoordinator(const std::string& socket)
    : service_(std::make_unique<Service>(socket)) {}
FakeCoordinator::~FakeCoordinator() = default;
std::vector<proto::Hello> FakeCoordinator::hellos() const {
  return service_->hellos();
}
std::vector<std::string> FakeCoordinator::told() const {
  return service_->told();
}
void FakeCoordinator::Send(const std::string& host, const proto::AgentOrder& order) {
  service_->Send(host, order);
}

}  // namespace weft
