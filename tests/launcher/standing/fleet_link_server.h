// FleetLinkServer answers a standing agent as weftd does, and decides nothing: it grants leases,
// keeps what is said, acknowledges if it is told to, and sends what a test says. It greets ordinary
// agents too, and keeps their first words. Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/agent.pb.h"
#include "proto/fleet.pb.h"

namespace weft {

class FleetLinkServer {
 public:
  // With a server's bundle it listens on a port too.
  explicit FleetLinkServer(const std::string& socket, const std::string& bundle_file = "");
  ~FleetLinkServer();
  FleetLinkServer(const FleetLinkServer&) = delete;
  FleetLinkServer& operator=(const FleetLinkServer&) = delete;

  struct Manner {
    int64_t lease_ms = 8000;
    bool grants = true;        // leases
    bool acknowledges = true;  // ends
    absl::Status refuses = absl::OkStatus();
  };
  void Behave(const Manner& manner);

  std::vector<proto::HostOffer> offers() const;   // one a stream
  std::vector<proto::OfferReport> ended() const;  // all that came, repetitions too
  int heartbeats() const;
  std::vector<proto::Hello> hellos() const;  // of ordinary agents

  std::string address() const;  // of the port
  // To the newest stream; it is gone if there is none.
  void Send(const proto::OfferOrder& order);
  // Ends the newest stream.
  void Cut(const absl::Status& status);

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace weft
