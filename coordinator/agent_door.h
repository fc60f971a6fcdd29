// The doors of agents: AgentLink's streams, from this host or over the network. Each belongs to the
// Driver of the job that its Hello names, if whoever serves has let it in there.
#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/driver.h"
#include "proto/agent.grpc.pb.h"

namespace weft {

// Who has opened a stream, by the kernel's word or by its certificate's.
struct AgentPeer {
  int64_t uid = -1;       // at the other end of the unix socket; -1: it came over the network
  std::string name = {};  // over the network: in its certificate
};
// The Driver that an agent works for, and for how long.
struct AgentPlace {
  std::shared_ptr<Driver> driver;
  AgentStay stay = AgentStay::kForTheJob;
};
// The place of an agent, or with which status its stream ends. Called on gRPC's threads.
using PlaceFinder =
    std::function<absl::StatusOr<AgentPlace>(const proto::Hello& hello, const AgentPeer& peer)>;

class AgentDoor final : public proto::AgentLink::CallbackService {
 public:
  // `ids` gives the streams theirs, each once. `uid`: of whoever calls here.
  AgentDoor(PlaceFinder find, std::atomic<int64_t>& ids, int64_t uid)
      : find_(std::move(find)), ids_(ids), uid_(uid) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext*) override;

 private:
  const PlaceFinder find_;
  std::atomic<int64_t>& ids_;
  const int64_t uid_;
};

// Agents of other hosts come this way: a certificate may have ended or been revoked since its
// connection was made, or come to that later.
class RemoteAgentDoor final : public proto::AgentLink::CallbackService {
 public:
  RemoteAgentDoor(PlaceFinder find, std::atomic<int64_t>& ids, std::string revoked_file)
      : find_(std::move(find)), ids_(ids), revoked_file_(std::move(revoked_file)) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  const PlaceFinder find_;
  std::atomic<int64_t>& ids_;
  const std::string revoked_file_;
};

}  // namespace weft
