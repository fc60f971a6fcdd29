// FakeCoordinator answers agents as weftd does, and decides nothing: it grants leases, acknowledges
// and keeps what is reported, passes mpirun's wishes for daemons on, and sends what a test says.
// Thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/agent.pb.h"

namespace weft {

class FakeCoordinator {
 public:
  explicit FakeCoordinator(const std::string& socket);
  ~FakeCoordinator();
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  // Returns what agents said first on their newest streams, by the order in which they came.
  std::vector<proto::Hello> hellos() const;
  // Reports other than Hello and Heartbeat, as "h2: ..." for a test to read.
  std::vector<std::string> told() const;
  // To the agent of that name; it is gone if there is none.
  void Send(const std::string& host, const proto::AgentOrder& order);

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace weft
