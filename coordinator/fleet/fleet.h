// The fleet as weftd sees it: facts in, state out (Apply); state in, duties out (Decide). Pure: no
// clock, no wire, no disk; replaying the journal through Apply rebuilds the fleet.
//
// It stays small on purpose: where there is Slurm or Kubernetes, they schedule. Whole hosts go to a
// job, or slots of one host to a job of one node that needs fewer. Priority orders the queue, then
// first come; nothing that runs is evicted; there is no backfill: a job that waits keeps every host
// that it may use from those behind it. One that could not run even if all were free waits without
// keeping anything from anybody.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/fleet/fleet_state.h"

namespace weft {

// The fleet after `event`. One that repeats what is known, or speaks of a job or a host that is not
// in a state for it, changes nothing; any other one also raises the revision by one.
Fleet Apply(Fleet fleet, const FleetEvent& event);

// Place the job there: the driver makes it a JobPlaced.
struct PlaceJob {
  int64_t job = 0;
  std::vector<FleetShare> shares;
};
// Ask the job's Driver to stop: it is unwanted, or to be paused or moved, its hosts are to be used
// for something else, or the hosts for its new size are there. Said for as long as that is so.
struct EndJob {
  int64_t job = 0;
  bool now = false;  // without saving
};
// A placed job has fewer hosts left than it needs, and has for too long: make it a JobMoves.
struct MoveJob {
  int64_t job = 0;
};
struct FleetDuties {
  std::vector<PlaceJob> place;
  std::vector<EndJob> end;
  std::vector<MoveJob> move;
};
// `now_ms`: Unix time.
FleetDuties Decide(const Fleet& fleet, int64_t now_ms);

// A queued job with what it waits for, for people.
struct QueuedJob {
  int64_t job = 0;
  std::string reason;
};
// Returns those that wait once Decide's duties are done, in the order of the queue.
std::vector<QueuedJob> Queue(const Fleet& fleet, int64_t now_ms);

// A placed job has too few hosts left, and waits until then for those that are gone: Unix time; 0:
// it has enough, or is to move already.
int64_t AwaitsGoneUntilMs(const Fleet& fleet, const FleetJob& job, int64_t now_ms);

// The submitter is the host's owner, as whom ranks run there: by name if the job came over the
// network.
bool IsOwner(const FleetHost& host, const FleetRequest& request);

// The id of the user as whom the job's ranks run on that host: the submitter's, where the kernel
// has said to weftd who that is and the host's agent is root's and can do so; else the host's
// owner's. One who has come over the network is known by a name alone, and is no user of the host
// for that.
int64_t RanksUid(const FleetHost& host, const FleetRequest& request);
// The host takes the job: its owner's, or one of a user whom it allows.
bool Admits(const FleetHost& host, const FleetRequest& request);
// Jobs may be placed there at that time.
bool IsUsable(const FleetHost& host, int64_t now_ms);

}  // namespace weft
