// The door of standing agents: FleetLink. Leases are granted here, on the thread that hears the
// heartbeat; the rest is FleetDriver's.
#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "coordinator/service/caller.h"
#include "coordinator/service/fleet_driver.h"
#include "proto/fleet.grpc.pb.h"

namespace weft {

class OfferDoor final : public proto::FleetLink::CallbackService {
 public:
  // `revoked_file`: of certificates; empty: nobody is revoked.
  OfferDoor(FleetDriver& fleet, std::atomic<int64_t>& ids, CallerFinder find,
            std::string revoked_file)
      : fleet_(fleet), ids_(ids), find_(std::move(find)), revoked_file_(std::move(revoked_file)) {}
  grpc::ServerBidiReactor<proto::OfferReport, proto::OfferOrder>* Offer(
      grpc::CallbackServerContext* context) override;

 private:
  FleetDriver& fleet_;
  std::atomic<int64_t>& ids_;
  const CallerFinder find_;
  const std::string revoked_file_;
};

}  // namespace weft
