// Sockets of the network: to listen at an address, and to say who has connected.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "process/rpc.h"

namespace weft {

// Listens at an address of this host, alone at its port, and does not block. Port 0: any free one.
// 0.0.0.0 is every address of the host, those of IPv6 too where it has them. Unavailable if the
// address cannot be listened on.
absl::StatusOr<int> ListenAt(const NetworkAddress& address);

// Returns the port that a socket of the network has; 0: it is none.
int PortOf(int listener);

// Returns the numeric address that a connection has come from, "10.0.0.7", IPv4 also where it came
// by a socket of IPv6; "unknown" if it is gone.
std::string PeerAddress(int connection);

// Returns the port that it has come from; 0: it is gone.
int PeerPort(int connection);

}  // namespace weft
