#include "coordinator/service/serve.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/driver.h"
#include "coordinator/journal.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_book.h"
#include "coordinator/service/fleet_driver.h"
#include "coordinator/service/fleet_journal.h"
#include "coordinator/service/fleet_service.h"
#include "coordinator/service/run_service.h"
#include "plan/errors.h"
#include "process/folder_entry.h"
#include "process/log.h"
#include "process/rpc.h"
#include "process/signals.h"
#include "process/version.h"

namespace weft {
namespace {

// Whole or not at all: somebody waits for the file.
absl::Status WritePort(const std::string& path, int port) {
  if (path.empty()) return absl::OkStatus();
  const EntryPath temporary = EntryOf(path + ".new");
  RemoveEntry(temporary);
  const OpenedEntry file = OpenEntry(temporary, EntryUse::kCreate);
  std::string why = file.why;
  if (file.ok()) {
    const std::string text = absl::StrCat(port, "\n");
    const bool written =
        write(file.descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        std::rename(temporary.text().c_str(), path.c_str()) == 0;
    if (!written) why = std::strerror(errno);
    close(file.descriptor);
  }
  if (why.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("port file ", path, ": cannot be written: ", why));
}

std::optional<TlsDoorOptions> NetworkOf(const ServeOptions& options) {
  if (options.listen.empty()) return std::nullopt;
  return TlsDoorOptions{
      .address = options.listen, .bundle_file = options.bundle, .revoked_file = options.revoked};
}

absl::Status TellPort(const ServeOptions& options, int port) {
  if (options.listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(NetworkAddress address, ParseAddress(options.listen));
  address.port = port;
  LogInfo(absl::StrCat("other hosts: ", AddressText(address), ", with TLS alone"));
  return WritePort(options.port_file, port);
}

absl::StatusOr<std::map<std::string, Role>> RolesOf(const ServeOptions& options) {
  std::map<std::string, Role> roles;
  for (const std::string& each : options.roles) {
    const std::vector<std::string> words = absl::StrSplit(each, '=');
    const std::optional<Role> role = words.size() == 2 ? ParseRole(words[1]) : std::nullopt;
    if (!role || words[0].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--user=", each,
                       ": is not NAME=ROLE, where the role is agent, viewer, "
                       "submitter or operator"));
    }
    roles[words[0]] = *role;
  }
  return roles;
}

// stderr goes to the file from now on.
absl::Status RedirectLog(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  const bool taken = file >= 0 && dup2(file, STDERR_FILENO) >= 0;
  const int why = errno;
  if (file >= 0) close(file);
  if (taken) return absl::OkStatus();
  return absl::ErrnoToStatus(why, absl::StrCat("log ", path, ": cannot be opened"));
}

// Ends a process: it is asked to (OK), more than once perhaps, or something has broken.
// Thread-safe.
class End {
 public:
  void Come(const absl::Status& why) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (why.ok()) ++asked_;
      if (broken_.ok()) broken_ = why;
    }
    changed_.notify_all();
  }
  bool WasAsked(int times) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_ >= times;
  }
  // Whoever waits need not wait any more.
  void Done() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_done_ = true;
    }
    changed_.notify_all();
  }
  // Until it was asked so often, something has broken, or all is done.
  absl::Status Await(int times = 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= times || is_done_ || !broken_.ok(); });
    return broken_;
  }
  // Until it was asked so often, or something has broken, for at most so long.
  absl::Status AwaitAsked(int times, std::chrono::milliseconds most) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, most, [&] { return asked_ >= times || !broken_.ok(); });
    return broken_;
  }

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int asked_ = 0;
  bool is_done_ = false;
  absl::Status broken_;
};

constexpr int64_t kOwnWatch = -1;  // of a job's events; callers' streams count from 1

// Whoever has started this process asks how the job has ended, and tells it to end then.
constexpr std::chrono::seconds kAnswersFor{5};

// A journal that cannot be written takes no wish, but there may be room soon.
constexpr std::chrono::milliseconds kAskAgainAfter{200};
constexpr std::chrono::milliseconds kLookForTermEvery{20};

// Says what became of the wish; OK, too, where this process was told a second time meanwhile.
absl::Status AskToSave(Driver& driver, End& end) {
  const auto told = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> answer = told->get_future();
  driver.StopJob({}, [told](const absl::Status& asked) { told->set_value(asked); });
  while (answer.wait_for(kLookForTermEvery) != std::future_status::ready) {
    if (end.WasAsked(/*times=*/2)) return absl::OkStatus();
  }
  return answer.get();
}

// The job saves and stops, and this process outlives that: its ranks need it for their last commit.
absl::Status SaveAndEnd(Driver& driver, End& end) {
  LogInfo("was told to end: a job saves and stops first; told again, it ends at once");
  absl::Status asked = AskToSave(driver, end);
  while (absl::IsUnavailable(asked) || absl::IsResourceExhausted(asked)) {
    RETURN_IF_ERROR(end.AwaitAsked(/*times=*/2, kAskAgainAfter));
    if (end.WasAsked(/*times=*/2)) return absl::OkStatus();
    asked = AskToSave(driver, end);
  }
  if (!asked.ok()) {
    LogInfo(absl::StrCat("nothing is to be saved: ", asked.message()));
    return absl::OkStatus();
  }
  driver.Watch(kOwnWatch, {},
               {.send = [](const std::vector<proto::JobEvent>&) {},
                .close = [&end](const absl::Status&) { end.Done(); }});
  RETURN_IF_ERROR(end.Await(/*times=*/2));
  return end.AwaitAsked(/*times=*/2, kAnswersFor);
}

absl::Status ServeFleet(const ServeOptions& options, End& end) {
  FleetDriverOptions fleet_options;
  fleet_options.version = Version();
  fleet_options.state_folder = options.state;
  fleet_options.lease_ms = options.lease_ms;
  fleet_options.on_broken = [&end](const absl::Status& why) { end.Come(why); };
  ASSIGN_OR_RETURN(const std::unique_ptr<FleetDriver> fleet,
                   FleetDriver::Start(std::move(fleet_options)));
  FleetServiceOptions service_options{
      .socket = options.socket, .version = Version(), .network = NetworkOf(options)};
  service_options.limits.calls_per_s = options.calls_per_s;
  ASSIGN_OR_RETURN(service_options.roles, RolesOf(options));
  // The listener says what is wrong with it.
  MakeFolder(std::filesystem::path(options.socket).parent_path());
  ASSIGN_OR_RETURN(const std::unique_ptr<FleetService> service,
                   FleetService::Start(std::move(service_options), *fleet));
  LogInfo(absl::StrCat("weftd ", Version(), " serves jobs on ", options.socket, ", process ",
                       getpid(), ", state in ", options.state));
  RETURN_IF_ERROR(TellPort(options, service->network_port()));
  RETURN_IF_ERROR(end.Await());
  if (options.absence_s > 0) fleet->GoAway(int64_t{1000} * options.absence_s);
  return absl::OkStatus();
}

absl::Status ServeJob(const ServeOptions& options, End& end) {
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal,
                   Journal::OpenInRunFolder(options.journal, options.run_id));
  if (!journal->moved_aside().empty()) {
    LogWarning(absl::StrCat("the journal of another version, or of another run folder, is now ",
                            journal->moved_aside(), "; the run goes on from its checkpoints"));
  }
  DriverOptions driver_options;
  driver_options.version = Version();
  driver_options.lease_ms = options.lease_ms;
  driver_options.on_broken = [&end](const absl::Status& why) { end.Come(why); };
  ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver,
                   Driver::Start(std::move(journal), std::move(driver_options)));
  ASSIGN_OR_RETURN(const std::unique_ptr<RunService> service,
                   RunService::Start(options.socket, Version(), *driver, NetworkOf(options)));
  LogInfo(absl::StrCat("weftd ", Version(), " serves on ", options.socket, ", process ", getpid()));
  RETURN_IF_ERROR(TellPort(options, service->network_port()));
  RETURN_IF_ERROR(end.Await());
  return SaveAndEnd(*driver, end);
}

}  // namespace

absl::Status CheckServeOptions(const ServeOptions& options) {
  if (options.check) {
    if (!options.state.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--check needs --state, the folder of the journals");
  }
  if (options.socket.empty() || options.journal.empty() == options.state.empty()) {
    return absl::InvalidArgumentError(
        "--socket and either --state, for many jobs, or --journal, for one, are required");
  }
  if (options.journal.empty() && !options.run_id.empty()) {
    return absl::InvalidArgumentError("--run-id is of --journal, which is not given");
  }
  if (options.listen.empty()) {
    if (options.bundle.empty() && options.revoked.empty() && options.port_file.empty()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "--tls, --revoked and --port-file are of --listen, which is not given");
  }
  RETURN_IF_ERROR(ParseAddress(options.listen).status());
  if (!options.bundle.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--listen=", options.listen,
                                                 ": off this host only TLS is spoken; add "
                                                 "--tls=BUNDLE, which `weftd issue server` makes"));
}

absl::Status CheckState(const std::string& state_folder) {
  const std::string path = state_folder + "/fleet.db";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path,
                                            ": is not there; --state names the folder that "
                                            "weftd was started with"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<FleetJournal> fleet, FleetJournal::OpenToRead(path));
  FleetBook book;
  RETURN_IF_ERROR(
      fleet->Replay([&](const proto::FleetSnapshot& snapshot,
                        int64_t revision) { return book.Restore(snapshot, revision); },
                    [&](const proto::FleetRecord& record) { return book.Take(record); }));
  std::printf("%s: revision %lld, %lld records after its snapshot, %zu jobs, %zu hosts\n",
              path.c_str(), static_cast<long long>(book.revision()),
              static_cast<long long>(fleet->records()), book.fleet().jobs.size(),
              book.fleet().hosts.size());
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(state_folder + "/jobs", error)) {
    if (entry.path().extension() != ".db") continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<Journal> journal, Journal::OpenToRead(entry.path()));
    ASSIGN_OR_RETURN(const std::vector<StoredEvent> facts, journal->Replay());
    std::printf("%s: %zu facts\n", entry.path().c_str(), facts.size());
  }
  return absl::OkStatus();
}

absl::Status Serve(const ServeOptions& options) {
  // Debian's Abseil looks for deadlocks at each lock that gRPC takes, one thread at a time: a tenth
  // and more of what a join of 100,000 ranks takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  RETURN_IF_ERROR(RedirectLog(options.log));
  End end;
  // A closed terminal ends nothing; whoever has moved the log away wants a new one.
  const SignalWatcher watcher({SIGTERM, SIGINT, SIGHUP}, [&](int signal) {
    if (signal != SIGHUP) return end.Come(absl::OkStatus());
    const absl::Status opened = RedirectLog(options.log);
    if (!opened.ok()) LogError(opened.message());
  });
  return options.state.empty() ? ServeJob(options, end) : ServeFleet(options, end);
}

}  // namespace weft
