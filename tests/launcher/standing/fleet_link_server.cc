#include "tests/launcher/standing/fleet_link_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "process/rpc.h"
#include "process/tls.h"
#include "proto/agent.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"

namespace weft {
namespace {

using Stream = grpc::ServerReaderWriter<proto::OfferOrder, proto::OfferReport>;
using AgentStream = grpc::ServerReaderWriter<proto::AgentOrder, proto::AgentReport>;

}  // namespace

class FleetLinkServer::Service final : public proto::FleetLink::Service,
                                       public proto::AgentLink::Service {
 public:
  Service(const std::string& socket, const std::string& bundle_file) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    if (!bundle_file.empty()) {
      const auto credentials = ListenerCredentials(bundle_file, "");
      if (credentials.ok()) builder.AddListeningPort("127.0.0.1:0", *credentials, &port_);
    }
    builder.RegisterService(static_cast<proto::FleetLink::Service*>(this));
    builder.RegisterService(static_cast<proto::AgentLink::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~Service() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  grpc::Status Offer(grpc::ServerContext*, Stream* stream) override {
    proto::OfferReport report;
    if (!stream->Read(&report) || !report.has_offer()) return grpc::Status::CANCELLED;
    {
      const std::lock_guard lock(mutex_);
      offers_.push_back(report.offer());
      if (!manner_.refuses.ok()) return ToGrpc(manner_.refuses);
      stream_ = stream;
      proto::OfferOrder welcome;
      welcome.mutable_welcome();
      stream->Write(welcome);
      Grant(report.offer().sent_boot_ms());
    }
    while (stream->Read(&report)) {
      const std::lock_guard lock(mutex_);
      if (stream_ != stream) break;
      if (report.has_heartbeat()) {
        ++heartbeats_;
        Grant(report.heartbeat().sent_boot_ms());
      } else if (report.has_agent_ended()) {
        ended_.push_back(report);
        proto::OfferOrder order;
        order.set_acknowledged(report.sequence());
        if (manner_.acknowledges) stream->Write(order);
      } else if (report.has_offer()) {
        offers_.push_back(report.offer());
      }
    }
    const std::lock_guard lock(mutex_);
    if (stream_ == stream) stream_ = nullptr;
    const absl::Status why = cut_.value_or(absl::OkStatus());
    cut_.reset();
    return ToGrpc(why);
  }

  grpc::Status Attach(grpc::ServerContext*, AgentStream* stream) override {
    proto::AgentReport report;
    if (!stream->Read(&report) || !report.has_hello()) return grpc::Status::CANCELLED;
    {
      const std::lock_guard lock(mutex_);
      hellos_.push_back(report.hello());
    }
    proto::AgentOrder welcome;
    welcome.mutable_welcome();
    stream->Write(welcome);
    while (stream->Read(&report)) {
      // As weftd, which a stop of this job would end: its agent is told to leave.
      if (report.has_save_requested()) return {grpc::StatusCode::ABORTED, "the job is over"};
    }
    return grpc::Status::OK;
  }

  void Send(const proto::OfferOrder& order) {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Write(order);
  }

  // The reading thread ends the stream: what it reads next is the agent's next heartbeat.
  void Cut(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    cut_ = status;
    stream_ = nullptr;
  }

  mutable std::mutex mutex_;  // guards all below
  Manner manner_;
  std::vector<proto::HostOffer> offers_;
  std::vector<proto::OfferReport> ended_;
  std::vector<proto::Hello> hellos_;
  int heartbeats_ = 0;
  int port_ = 0;

 private:
  // REQUIRES: mutex_ held.
  void Grant(int64_t sent_boot_ms) {
    if (!manner_.grants) return;
    proto::OfferOrder order;
    order.mutable_lease()->set_sent_boot_ms(sent_boot_ms);
    order.mutable_lease()->set_lease_ms(manner_.lease_ms);
    stream_->Write(order);
  }

  Stream* stream_ = nullptr;
  std::optional<absl::Status> cut_;
  std::unique_ptr<grpc::Server> server_;
};

FleetLinkServer::FleetLinkServer(const std::string& socket, const std::string& bundle_file)
    : service_(std::make_unique<Service>(socket, bundle_file)) {}
FleetLinkServer::~FleetLinkServer() = default;

void FleetLinkServer::Behave(const Manner& manner) {
  const std::lock_guard lock(service_->mutex_);
  service_->manner_ = manner;
}
std::vector<proto::HostOffer> FleetLinkServer::offers() const {
  const std::lock_guard lock(service_->mutex_);
  return service_->offers_;
}
std::vector<proto::OfferReport> FleetLinkServer::ended() const {
  const std::lock_guard lock(service_->mutex_);
  return service_->ended_;
}
int FleetLinkServer::heartbeats() const {
  const std::lock_guard lock(service_->mutex_);
  return service_->heartbeats_;
}
std::vector<proto::Hello> FleetLinkServer::hellos() const {
  const std::lock_guard lock(service_->mutex_);
  return service_->hellos_;
}
std::string FleetLinkServer::address() const {
  return absl::StrCat("127.0.0.1:", service_->port_);
}
void FleetLinkServer::Send(const proto::OfferOrder& order) {
  service_->Send(order);
}
void FleetLinkServer::Cut(const absl::Status& status) {
  service_->Cut(status);
}

}  // namespace weft
