// FleetService: the gRPC doors of a weftd that serves many jobs: people, standing agents and the
// agents of jobs, on a unix socket and, with TLS, on the network; reflection and health beside
// them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/service/call_limits.h"
#include "coordinator/service/caller.h"
#include "coordinator/service/fleet_driver.h"
#include "coordinator/tls_door.h"
#include "process/clock.h"

namespace weft {

struct FleetServiceOptions {
  std::string socket;   // path of the unix socket
  std::string version;  // answers Control.Version
  // Users beside this process's own that the socket lets in.
  std::map<std::string, Role> roles = {};
  std::optional<TlsDoorOptions> network = {};
  CallLimitOptions limits = {};
  std::function<int64_t()> now_ms = BootTimeMs;  // of the limits
};

class FleetService final {
 public:
  // Serves `fleet`, which outlives it.
  static absl::StatusOr<std::unique_ptr<FleetService>> Start(FleetServiceOptions options,
                                                             FleetDriver& fleet);
  // Closes the fleet, so that every waiting call is answered, then the doors; removes the socket.
  ~FleetService();
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;

  int network_port() const;  // 0: not on the network

 private:
  struct Doors;  // the gRPC part
  explicit FleetService(std::unique_ptr<Doors> doors);
  const std::unique_ptr<Doors> doors_;
};

}  // namespace weft
