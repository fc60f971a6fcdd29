// Service: the coordinator's gRPC door on a unix socket. Adaptors without decisions between the
// callback API and the driver: each call becomes one call of Driver, each answer one message.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/driver.h"

namespace weft {

class Service final {
 public:
  // Serves `driver`, which outlives it, on `socket_path`. `version` answers Control.Version.
  static absl::StatusOr<std::unique_ptr<Service>> Start(const std::string& socket_path,
                                                        const std::string& version, Driver& driver);
  // Closes the driver, so that every waiting call is answered, then the door; removes the socket.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

 private:
  struct Door;  // the gRPC part
  explicit Service(std::unique_ptr<Door> door);
  const std::unique_ptr<Door> door_;
};

}  // namespace weft
