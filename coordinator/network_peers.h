// NetworkPeers knows the connections to weftd's port on the network. Whoever connects has shown no
// certificate yet: of such connections one address has so many. From the first call on, a
// connection is its certificate's, and counts for nobody else, however many hosts lie behind one
// address. Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "coordinator/open_connections.h"

namespace weft {

class NetworkPeers final {
 public:
  // `most`: connections of one address without a certificate, and of one certificate.
  explicit NetworkPeers(int most) : silent_(most), known_(most) {}

  // Takes in a connection that was accepted; false: it is closed, since its address has too many
  // that have shown no certificate. `now_ms` never goes back.
  bool Accept(int connection, int64_t now_ms);
  // A call has come by the connection of `peer`, as gRPC names it ("ipv4:10.0.0.5:4711"), with the
  // certificate of `name`. A connection more than that one may have is cut.
  void Called(const std::string& peer, const std::string& name, int64_t now_ms);
  // Logs whose connections ended before a call came: TLS has failed, or they said nothing. Once for
  // each address in ten seconds.
  void LookForFailed(int64_t now_ms);

 private:
  struct Silent {
    int connection = -1;
    ino_t socket = 0;
    std::string address;
  };
  struct Failures {
    int64_t told_ms = 0;
    int untold = 0;
  };
  void TellFailed(const std::string& peer, const std::string& address, int64_t now_ms);

  std::mutex mutex_;                          // guards what follows
  std::map<std::string, Silent> unproven_;    // by peer
  OpenConnections silent_;                    // by address
  OpenConnections known_;                     // by certificate
  std::map<std::string, Failures> failures_;  // by address
};

}  // namespace weft
