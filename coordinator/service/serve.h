// A coordinator's life as a process: opens the journal, starts the driver and its doors, and serves
// until a signal comes or the journal breaks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft {

struct ServeOptions {
  std::string socket = {};   // unix socket, for this user's processes on this host
  std::string journal = {};  // SQLite file that keeps every fact; of a weftd for one job
  std::string run_id = {};   // of that job's run; empty: whichever's the journal is
  std::string state = {};    // folder of the journals; of a weftd that serves many jobs
  std::optional<int64_t> lease_ms = std::nullopt;
  // Users that the socket lets in beside this process's own, "ann=submitter"; of many jobs.
  std::vector<std::string> roles = {};
  int calls_per_s = 1000;   // of one caller of the service; 0: no limit
  int absence_s = 600;      // that what runs goes on without it, once it was told to end
  bool check = false;       // looks at the state's journals, and serves nothing
  std::string log = {};     // file that stderr goes to, opened anew at each SIGHUP; empty: as it is
  std::string listen = {};  // HOST:PORT for other hosts; empty: not on the network
  std::string bundle = {};  // the server's, for `listen`
  std::string revoked = {};    // file of revoked certificates
  std::string port_file = {};  // takes the port that `listen` came to; may be empty
};

// InvalidArgument if the options contradict each other: nothing listens on the network without TLS.
absl::Status CheckServeOptions(const ServeOptions& options);

// Reads all journals of a state folder and prints what is in them. DataLoss: one is damaged.
// FailedPrecondition: a weftd has them. Changes nothing.
absl::Status CheckState(const std::string& state_folder);

// Returns after SIGTERM or SIGINT, or what keeps it from serving. One that serves many jobs leaves
// what runs to its successor; that of one job has it saved first, unless it is told a second time.
// REQUIRES: the options are checked; no other thread runs yet.
absl::Status Serve(const ServeOptions& options);

}  // namespace weft
