// RunService is what a private weftd, that of one run, serves: weft.v1 and its agents on a unix
// socket, for this user alone, and agents of other hosts on the network (tls_door.h).
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/driver.h"
#include "coordinator/tls_door.h"

namespace weft {

class RunService final {
 public:
  // Serves `driver`, which outlives it, on `socket_path` and, if asked to, on the network.
  // `version` answers Control.Version.
  static absl::StatusOr<std::unique_ptr<RunService>> Start(
      const std::string& socket_path, const std::string& version, Driver& driver,
      const std::optional<TlsDoorOptions>& network = std::nullopt);
  // Closes the driver, so that every waiting call is answered, then the door; removes the socket.
  ~RunService();
  RunService(const RunService&) = delete;
  RunService& operator=(const RunService&) = delete;

  int network_port() const;  // 0: not on the network

 private:
  struct Door;  // the gRPC part
  explicit RunService(std::unique_ptr<Door> door);
  const std::unique_ptr<Door> door_;
};

}  // namespace weft
