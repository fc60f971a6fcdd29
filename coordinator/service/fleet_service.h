// FleetService: the gRPC doors of a weftd that serves many jobs: people, standing agents and the
// agents of jobs, on a unix socket; reflection and health beside them.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/service/fleet_driver.h"

namespace weft {

class FleetService final {
 public:
  // Serves `fleet`, which outlives it, on `socket_path`. `version` answers Control.Version.
  static absl::StatusOr<std::unique_ptr<FleetService>> Start(const std::string& socket_path,
                                                             const std::string& version,
                                                             FleetDriver& fleet);
  // Closes the fleet, so that every waiting call is answered, then the doors; removes the socket.
  ~FleetService();
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;

 private:
  struct Doors;  // the gRPC part
  explicit FleetService(std::unique_ptr<Doors> doors);
  const std::unique_ptr<Doors> doors_;
};

}  // namespace weft
