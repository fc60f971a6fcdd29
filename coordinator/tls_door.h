// TlsDoor: a coordinator's listener on the network. It is a gRPC server of its own that knows the
// services that it is given: of a weftd for one job the agents' alone, so that an agent's
// certificate opens neither the door of people nor that of ranks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/network_peers.h"
#include "process/accept_loop.h"

namespace grpc {
class Server;
class Service;
namespace experimental {
class ExternalConnectionAcceptor;
}  // namespace experimental
}  // namespace grpc

namespace weft {

struct TlsDoorOptions {
  std::string address;            // HOST:PORT of this host; port 0: any
  std::string bundle_file;        // the server's
  std::string revoked_file = {};  // empty: nobody is revoked
  // Connections that a certificate may have open, and an address of those that have shown none;
  // 0: any number.
  int connections = 0;
};

class TlsDoor final {
 public:
  // Serves `services`, which outlive it. InvalidArgument or Unavailable if the address cannot be
  // listened on; the errors of ListenerCredentials.
  static absl::StatusOr<std::unique_ptr<TlsDoor>> Open(const TlsDoorOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Ends what still runs after a short while.
  ~TlsDoor();
  TlsDoor(const TlsDoor&) = delete;
  TlsDoor& operator=(const TlsDoor&) = delete;

  int port() const { return port_; }

 private:
  explicit TlsDoor(int connections);
  void Take(int connection);

  NetworkPeers peers_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<AcceptLoop> loop_;
};

}  // namespace weft
