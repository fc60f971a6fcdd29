#include "launcher/agent/agent_seat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/machine/leftovers.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int kSeatLookEveryMs = 10;
// From a KILL to the end of a process with much memory, on a machine where it gets a tenth of a
// processor to end on.
constexpr int kDeathMs = 10000;
constexpr int kUnseenMs = 2000;  // one that cannot be killed from here gets so long to leave

struct flock WholeFile(int16_t type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

AgentSeat::AgentSeat(std::string run_id, std::string host)
    : run_id_(std::move(run_id)), host_(std::move(host)), folder_(SeatFolder(run_id_, host_)) {}

AgentSeat::AgentSeat(AgentSeat&& other) noexcept
    : run_id_(std::move(other.run_id_)),
      host_(std::move(other.host_)),
      folder_(std::move(other.folder_)),
      lock_(std::move(other.lock_)),
      taken_(std::exchange(other.taken_, false)) {}

bool AgentSeat::IsTaken(const std::string& run_id, const std::string& host) {
  const std::string path = SeatFolder(run_id, host) + "/" + kSeatLock;
  const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = WholeFile(F_WRLCK);
  return file.valid() && fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// The seat's own removal is the one way that no other agent's files are in.
bool AgentSeat::Clear(const std::string& run_id, const std::string& host) {
  const auto is_there = [](const std::string& folder) { return access(folder.c_str(), F_OK) == 0; };
  const auto any_is_there = [&] {
    const std::vector<std::string> folders = TemporaryFolders(run_id, host);
    return std::any_of(folders.begin(), folders.end(), is_there);
  };
  if (!any_is_there()) return true;
  {
    AgentSeat seat(run_id, host);
    const absl::StatusOr<bool> taken = seat.TryTake();
    if (!taken.ok() || !*taken) return false;
  }
  return !any_is_there();
}

// Whoever waits has the file open: what is under the lock goes first, then the file, by whose
// absence that one knows that it has waited for a seat that is no more.
AgentSeat::~AgentSeat() {
  if (!taken_) return;
  RemoveFiles();
  unlink((folder_ + "/" + kSeatLock).c_str());
  rmdir(folder_.c_str());  // not if the next one has made its own file there
}

void AgentSeat::RemoveFiles() const {
  std::error_code error;
  for (const std::string& folder : TemporaryFolders(run_id_, host_)) {
    if (folder != folder_) std::filesystem::remove_all(folder, error);
  }
  std::filesystem::directory_iterator entry(folder_, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename() != kSeatLock) std::filesystem::remove_all(entry->path(), ignored);
  }
}

absl::StatusOr<bool> AgentSeat::TryTake() {
  RETURN_IF_ERROR(MakePrivateFolder(folder_));
  const std::string path = folder_ + "/" + kSeatLock;
  lock_ = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_.valid()) {
    if (errno == ENOENT) return false;  // the folder has gone in between
    return absl::ErrnoToStatus(errno, path);
  }
  struct flock lock = WholeFile(F_WRLCK);
  if (fcntl(lock_.get(), F_SETLK, &lock) != 0) {
    if (errno == EACCES || errno == EAGAIN) return false;
    return absl::ErrnoToStatus(errno, path);
  }
  struct stat held = {};
  struct stat named = {};
  taken_ = fstat(lock_.get(), &held) == 0 && stat(path.c_str(), &named) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  return taken_;
}

pid_t AgentSeat::Holder() const {
  struct flock lock = WholeFile(F_WRLCK);
  if (!lock_.valid() || fcntl(lock_.get(), F_GETLK, &lock) != 0) return 0;
  return lock.l_type == F_UNLCK || lock.l_pid <= 0 ? 0 : lock.l_pid;
}

absl::StatusOr<AgentSeat> AgentSeat::Take(const std::string& run_id, const std::string& host,
                                          int patience_ms) {
  AgentSeat seat(run_id, host);
  const int64_t kill_from_ms = BootTimeMs() + patience_ms;
  pid_t killed = 0;
  for (;; usleep(kSeatLookEveryMs * 1000)) {
    ASSIGN_OR_RETURN(const bool taken, seat.TryTake());
    if (taken) break;
    const pid_t holder = seat.Holder();
    const int64_t late_ms = BootTimeMs() - kill_from_ms;
    if (late_ms > (holder > 0 ? kDeathMs : kUnseenMs)) {
      return absl::UnavailableError(absl::StrCat(
          "another agent of this run is here, ",
          holder > 0 ? absl::StrCat("process ", holder, ", and cannot be ended; see its state")
                     : "in a container that shares this one's /dev/shm; give each its own"));
    }
    if (holder == 0 || late_ms < 0) continue;
    const Descriptor pidfd = OpenPidfd(holder);
    // The number may be another's by now: only who still holds the lock is killed.
    if (seat.Holder() != holder || !SignalPidfd(pidfd, SIGKILL)) continue;
    if (std::exchange(killed, holder) == holder) continue;
    LogWarning(absl::StrCat("the agent that was here before, process ", holder,
                            ", does not leave; it is killed"));
  }
  seat.RemoveFiles();  // of one that was killed
  return seat;
}

}  // namespace weft
