// SimulatedHost: a standing agent without processes. It offers one host to a weftd that serves many
// jobs, and starts nothing itself: whoever made it is told which jobs' agents are to run.
#pragma once
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "proto/fleet.grpc.pb.h"

namespace weft {

class SimulatedHost final : public grpc::ClientBidiReactor<proto::OfferReport, proto::OfferOrder> {
 public:
  using OnStart = std::function<void(const proto::StartAgent&)>;

  // `on_start` is called on a thread of gRPC's and must not block.
  SimulatedHost(std::string host, int slots, OnStart on_start)
      : host_(std::move(host)), slots_(slots), on_start_(std::move(on_start)) {}
  ~SimulatedHost() override;

  absl::Status Dial(const std::string& target);
  // Asks for the lease of the offer.
  void Beat();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Say(proto::OfferReport report);

  const std::string host_;
  const int slots_;
  const OnStart on_start_;
  grpc::ClientContext context_;
  std::unique_ptr<proto::FleetLink::Stub> stub_;
  proto::OfferOrder order_;  // of the reading thread
  std::mutex mutex_;         // guards the two below
  std::deque<proto::OfferReport> queue_;
  bool done_ = false;
  bool dialed_ = false;
  std::condition_variable changed_;
};

}  // namespace weft
