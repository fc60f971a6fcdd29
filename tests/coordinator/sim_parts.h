// The things of the simulated fleet (fleet_sim.cc): a rank's process, an agent, a host, the disk.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/host_agent.h"
#include "proto/agent.pb.h"

namespace weft {

// The shared disk holds what was published.
struct Disk {
  std::map<int64_t, int64_t> generation_of_step;  // published checkpoints
};

struct Rank {
  int64_t generation = 0;
  int rank = 0;
  int world_size = 0;
  int64_t pid = 0;
  bool alive = true;
  int64_t frozen_until_ms = 0;
  int64_t stop_at_ms = 0;
  bool has_lease = false;  // before, stop_at_ms is its own patience
  int64_t stream = 0;      // to its agent; 0: none
  bool welcome = false;
  bool trains = false;  // has its assignment
  bool ready = false;
  bool begun = false;
  int64_t step = 0;
  int64_t saves = 0;
  bool saving = false;
  bool finished = false;
  bool stopping = false;
  int64_t sequence = 0;
  int64_t register_sequence = 0;
  int64_t finished_sequence = 0;
  std::deque<proto::WorkerReport> unacknowledged;
};

struct Agent {
  bool alive = false;
  int64_t pid = 0;
  HostAgent mind;
  int64_t stream = 0;  // to the coordinator; 0: none
  bool admitted = false;
  int64_t told_launch = 0;  // newest generation, as its link has heard it
  std::deque<proto::AgentReport> unacknowledged;
  std::vector<proto::AgentReport> said;  // all of it
  int64_t lease_end_ms = 0;
  int64_t rank_stop_at_ms = 0;
  std::set<int64_t> heard;
  std::optional<proto::Launch> launch;
  std::deque<proto::AgentOrder> waiting;  // for the generation that is held to be gone
};

struct Host {
  int index = 0;
  std::string machine;
  bool dead = false;  // the whole of it
  int64_t cut_until_ms = 0;
  int64_t frozen_until_ms = 0;  // its agent; each rank has its own
  Agent agent;
  std::vector<std::shared_ptr<Rank>> ranks;  // all that were ever started and not forgotten
};

}  // namespace weft
