// The doors of agents: AgentLink's streams, from this host or over the network. Each belongs to the
// Driver of the job that its Hello names. Adaptors without decisions, as service.h.
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

// The Driver for an agent, or with which status its stream ends. Called on gRPC's threads.
using DriverFinder =
    std::function<absl::StatusOr<std::shared_ptr<Driver>>(const proto::Hello& hello)>;

class AgentDoor final : public proto::AgentLink::CallbackService {
 public:
  // `ids` gives the streams theirs, each once.
  AgentDoor(DriverFinder find, std::atomic<int64_t>& ids) : find_(std::move(find)), ids_(ids) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext*) override;

 private:
  const DriverFinder find_;
  std::atomic<int64_t>& ids_;
};

// Agents of other hosts come this way: a certificate may have ended or been revoked since its
// connection was made, or come to that later.
class RemoteAgentDoor final : public proto::AgentLink::CallbackService {
 public:
  RemoteAgentDoor(DriverFinder find, std::atomic<int64_t>& ids, std::string revoked_file)
      : find_(std::move(find)), ids_(ids), revoked_file_(std::move(revoked_file)) {}
  grpc::ServerBidiReactor<proto::AgentReport, proto::AgentOrder>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  const DriverFinder find_;
  std::atomic<int64_t>& ids_;
  const std::string revoked_file_;
};

}  // namespace weft
