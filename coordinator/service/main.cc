// weftd: the coordinator. Usage: weftd --socket=<path> --state=<folder> serves many jobs; weftd
// --socket=<path> --journal=<path> [--run-id=<id>] [--lease-ms=<ms>] [--listen=<host>:<port>
// --tls=<bundle>] serves one, that of `weft run`; or weftd authority | issue | revoke.
// Runs until SIGTERM or SIGINT; logs to stderr. Exits with 0 after closing, 2 for a usage that is
// none, 75 if it may serve later (another one holds its journal), 1 if it cannot.
#include <CLI/CLI.hpp>

#include "coordinator/lease_book.h"
#include "coordinator/service/authority_verbs.h"
#include "coordinator/service/serve.h"
#include "process/last_words.h"
#include "process/log.h"
#include "process/version.h"

int main(int argc, char** argv) {
  weft::HoldLastWords();
  weft::ServeOptions options;
  absl::Status status;
  CLI::App app("weftd: the coordinator of weft", "weftd");
  app.set_version_flag("--version", weft::VersionText());
  app.require_subcommand(0, 1);
  app.add_option("--socket", options.socket, "unix socket to serve on");
  app.add_option(
      "--state", options.state,
      "folder of its journals: serves many jobs, on the hosts that standing agents offer");
  app.add_option("--journal", options.journal, "SQLite file that keeps every fact, of one job");
  app.add_option("--run-id", options.run_id, "the run that --journal has to be of");
  app.add_option(
         "--user", options.roles,
         "NAME=ROLE, a user that the socket lets in: viewer, submitter, operator, or agent, who "
         "offers hosts alone; more than once")
      ->allow_extra_args(false);
  app.add_option("--calls-per-second", options.calls_per_s,
                 "that one caller of the service may make, and twice as many at once; 0: no limit; "
                 "default: 1000")
      ->check(CLI::Range(0, 1000000));
  app.add_flag("--check", options.check,
               "read the journals of --state, say what is in them, and end");
  app.add_option("--absence-seconds", options.absence_s,
                 "for so long what runs goes on without weftd, once it was told to end (TERM), and "
                 "nothing of it is placed elsewhere; of --state; default: 600")
      ->check(CLI::Range(0, static_cast<int>(weft::kLongestAbsenceMs / 1000)));
  app.add_option("--log", options.log, "file for its log, opened anew at SIGHUP; default: stderr");
  app.add_option("--lease-ms", options.lease_ms,
                 "silence after which a worker is lost; default: what the job says")
      ->check(CLI::Range(100, 3600000));
  app.add_option("--listen", options.listen, "HOST:PORT for other hosts; port 0: any");
  app.add_option("--tls", options.bundle, "bundle of `weftd issue server`, for --listen");
  app.add_option("--revoked", options.revoked, "the authority's file of that name");
  app.add_option("--port-file", options.port_file, "file that takes the port of --listen");
  weft::AddAuthorityVerbs(app, &status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (app.get_subcommands().empty()) {
    status = weft::CheckServeOptions(options);
    if (status.ok()) {
      status = options.check ? weft::CheckState(options.state) : weft::Serve(options);
    }
  }
  if (status.ok()) return 0;
  weft::LogError(status.message());
  constexpr int kTryAgain = 75;
  return absl::IsInvalidArgument(status) ? 2 : absl::IsUnavailable(status) ? kTryAgain : 1;
}
