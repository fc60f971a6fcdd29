// Service: the coordinator's gRPC doors, on a unix socket and, for agents of other hosts, on the
// network (tls_door.h). Adaptors without decisions between the callback API and the driver: each
// call becomes one call of Driver, each answer one message.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/driver.h"
#include "coordinator/tls_door.h"

namespace weft {

class Service final {
 public:
  // Serves `driver`, which outlives it, on `socket_path` and, if asked to, on the network.
  // `version` answers Control.Version.
  static absl::StatusOr<std::unique_ptr<Service>> Start(
      const std::string& socket_path, const std::string& version, Driver& driver,
      const std::optional<TlsDoorOptions>& network = std::nullopt);
  // Closes the driver, so that every waiting call is answered, then the door; removes the socket.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  int network_port() const;  // 0: not on the network

 private:
  struct Door;  // the gRPC part
  explicit Service(std::unique_ptr<Door> door);
  const std::unique_ptr<Door> door_;
};

}  // namespace weft
