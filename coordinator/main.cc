// weftd: the coordinator. Usage: weftd --socket=<path> --journal=<path> [--lease-ms=<ms>]
// Runs until SIGTERM or SIGINT; logs to stderr. Exits with 0 after closing, 1 if it cannot serve.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/driver.h"
#include "coordinator/journal.h"
#include "coordinator/service.h"
#include "plan/errors.h"
#include "plan/shards/shard.h"
#include "process/log.h"
#include "process/signals.h"
#include "process/version.h"

namespace weft {
namespace {

struct Flags {
  std::string socket;
  std::string journal;
  std::optional<int64_t> lease_ms;
};

// Serves until a signal comes, or until the journal breaks.
absl::Status Serve(const Flags& flags) {
  std::promise<absl::Status> end;
  std::once_flag once;
  const auto finish = [&](const absl::Status& why) {
    std::call_once(once, [&] { end.set_value(why); });
  };
  const SignalWatcher watcher({SIGTERM, SIGINT}, [&](int) { finish(absl::OkStatus()); });
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, Journal::Open(flags.journal));
  if (!journal->moved_aside().empty()) {
    LogWarning(absl::StrCat("the journal of another version is now ", journal->moved_aside(),
                            "; the run goes on from its checkpoints"));
  }
  DriverOptions options;
  options.version = Version();
  options.lease_ms = flags.lease_ms;
  options.on_broken = finish;
  ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver,
                   Driver::Start(std::move(journal), std::move(options)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Service> service,
                   Service::Start(flags.socket, Version(), *driver));
  LogInfo(absl::StrCat("weftd ", Version(), " serves on ", flags.socket, ", process ", getpid()));
  return end.get_future().get();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Flags flags;
  CLI::App app("weftd: the coordinator of weft", "weftd");
  app.set_version_flag("--version", weft::VersionText());
  app.add_option("--socket", flags.socket, "unix socket to serve on")->required();
  app.add_option("--journal", flags.journal, "SQLite file that keeps every fact")->required();
  app.add_option("--lease-ms", flags.lease_ms,
                 "silence after which a worker is lost; default: what the job says")
      ->check(CLI::Range(100, 3600000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = weft::Serve(flags);
  if (status.ok()) return 0;
  weft::LogError(status.message());
  return 1;
}
