#include "launcher/agent/host_checker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/agent/host_checks.h"
#include "launcher/agent/pair_door.h"
#include "launcher/agent/product_rate.h"
#include "launcher/agent/read_ahead.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/descriptor.h"
#include "process/clock.h"
#include "process/log.h"
#include "proto/job_text.h"

namespace weft {
namespace {

constexpr int64_t kDialMs = 2500;  // a lost packet is sent again after one second

proto::CheckResult Broken(absl::string_view name, absl::string_view found, absl::string_view cure) {
  proto::CheckResult result;
  result.set_name(std::string(name));
  result.set_severity(proto::CheckResult::BROKEN);
  result.set_found(std::string(found));
  result.set_cure(std::string(cure));
  return result;
}

}  // namespace

// Threads that nobody waits for may still touch this after the agent has left.
struct HostChecker::Shared {
  explicit Shared(int wake_fd) : wake(fcntl(wake_fd, F_DUPFD_CLOEXEC, 0)) {}

  void Say(proto::AgentReport report) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      reports.push_back(std::move(report));
    }
    const uint64_t one = 1;
    if (write(wake.get(), &one, sizeof(one)) < 0) return;  // it is awake
  }

  const Descriptor wake;
  std::mutex mutex;  // guards the next
  std::vector<proto::AgentReport> reports;
  std::atomic<int64_t> round = 0;          // the newest; older ones are given up
  std::atomic<int64_t> reading_ahead = 0;  // counts the orders
};

struct HostChecker::Round {
  std::shared_ptr<Shared> shared;
  Options options;
  proto::CheckHost order;
  JobSpec job;
  int64_t skew_ms = 0;
  int64_t end_ms = 0;  // of CLOCK_BOOTTIME
  std::mutex mutex;    // guards the two below
  std::unique_ptr<PairDoor> door;
  std::optional<proto::CheckPeers> peers;
  std::condition_variable changed;

  int64_t left_ms() const { return std::max<int64_t>(0, end_ms - BootTimeMs()); }
};

HostChecker::HostChecker(Options options)
    : options_(std::move(options)), shared_(std::make_shared<Shared>(options_.wake_fd)) {}

HostChecker::~HostChecker() {
  shared_->round = -1;
  ++shared_->reading_ahead;
}

std::vector<proto::AgentReport> HostChecker::TakeReports() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return std::exchange(shared_->reports, {});
}

bool HostChecker::Take(const proto::AgentOrder& order) {
  if (order.has_check_host()) {
    auto round = std::make_shared<Round>();
    round->shared = shared_;
    round->options = options_;
    round->order = order.check_host();
    round->skew_ms = absl::ToUnixMillis(absl::Now()) - order.check_host().sent_unix_ms();
    round->end_ms = BootTimeMs() + order.check_host().limit_ms();
    shared_->round = order.check_host().round();
    round_ = round;
    std::thread([round] { Run(round); }).detach();
    return true;
  }
  if (order.has_check_peers()) {
    if (round_ == nullptr || round_->order.round() != order.check_peers().round()) return true;
    const std::lock_guard<std::mutex> lock(round_->mutex);
    if (round_->peers) return true;
    round_->peers = order.check_peers();
    // Others may dial already, whatever else this host is still busy with.
    if (round_->door != nullptr) {
      round_->door->Answer({round_->order.round(), round_->peers->secret()}, options_.machine,
                           round_->peers->dialled_by(), round_->left_ms());
    }
    round_->changed.notify_all();
    return true;
  }
  if (!order.has_read_ahead()) return false;
  std::thread([shared = shared_, number = ++shared_->reading_ahead,
               folder = order.read_ahead().folder()] {
    ReadAhead(folder, [&] { return shared->reading_ahead == number; });
  }).detach();
  return true;
}

namespace {

// Adds what the product says. A host whose product cannot be measured is not worse for it: what is
// missing there shows when its ranks start.
void MeasureProduct(const JobSpec& job, int64_t limit_ms, proto::HostChecked* checked) {
  const absl::StatusOr<double> rate =
      ProductRate(job.cluster.device.backend, job.threads_per_worker, limit_ms);
  proto::CheckResult& result = *checked->add_results();
  result.set_name("product");
  if (rate.ok()) {
    checked->set_product_flops_per_s(*rate);
    result.set_found(absl::StrFormat("%.1f GFLOP/s", *rate / 1e9));
  } else {
    result.set_severity(proto::CheckResult::NOTE);
    result.set_found(std::string(rate.status().message()));
  }
}

}  // namespace

// Folders and data are those that ranks see.
std::vector<proto::CheckResult> HostChecker::CheckAsRanks(const Round& round) {
  const std::optional<ProcessUser>& user = round.options.user;
  const AsUser as(user ? &*user : nullptr);
  return RunHostChecks(round.order, round.job, round.skew_ms, round.options.is_coordinators,
                       round.options.slots);
}

// On the round's thread. The door comes first: the others wait for it.
void HostChecker::Run(const std::shared_ptr<Round>& round) {
  const proto::CheckHost& order = round->order;
  proto::AgentReport report;
  proto::HostChecked& checked = *report.mutable_host_checked();
  checked.set_round(order.round());
  checked.set_pairs_only(order.pairs_only());
  absl::StatusOr<JobSpec> job = ParseJobText(order.job());
  if (!job.ok()) {
    *checked.add_results() = Broken("job", job.status().message(), "install one build everywhere");
    return round->shared->Say(report);
  }
  round->job = *std::move(job);
  if (order.has_peers()) OpenDoor(*round);
  if (!order.pairs_only()) {
    for (proto::CheckResult& each : CheckAsRanks(*round)) *checked.add_results() = std::move(each);
    if (!order.is_alone()) MeasureProduct(round->job, round->left_ms(), &checked);
  }
  if (order.has_peers()) MeetPeers(*round, &checked);
  if (round->shared->round != order.round()) return;
  round->shared->Say(report);
}

void HostChecker::OpenDoor(Round& round) {
  proto::AgentReport report;
  proto::CheckOpened& opened = *report.mutable_check_opened();
  opened.set_round(round.order.round());
  const std::string address = AddressIn(round.job.hosts.network, OwnAddresses());
  if (!address.empty()) {
    absl::StatusOr<std::unique_ptr<PairDoor>> door = PairDoor::Open(address);
    if (door.ok()) {
      opened.set_address(address);
      opened.set_port((*door)->port());
      const std::lock_guard<std::mutex> lock(round.mutex);
      round.door = *std::move(door);
    } else {
      LogWarning(absl::StrCat("check of pairs: ", door.status().message()));
    }
  }
  round.shared->Say(report);
}

void HostChecker::MeetPeers(Round& round, proto::HostChecked* checked) {
  proto::CheckPeers peers;
  {
    std::unique_lock<std::mutex> lock(round.mutex);
    round.changed.wait_for(lock, std::chrono::milliseconds(round.left_ms()),
                           [&] { return round.peers.has_value(); });
    if (!round.peers) {
      round.door.reset();
      *checked->add_results() = Broken("pairs", "was not told of the other hosts in time",
                                       "its link to the coordinator is too slow");
      return;
    }
    peers = *round.peers;
  }
  const std::vector<proto::Unreached> unreached =
      DialPeers({round.order.round(), peers.secret()}, {peers.peers().begin(), peers.peers().end()},
                std::clamp<int64_t>(round.left_ms(), 1, kDialMs));
  for (const proto::Unreached& each : unreached) *checked->add_unreached() = each;
  proto::CheckResult& result = *checked->add_results();
  result.set_name("pairs");
  const int reached = peers.peers_size() - static_cast<int>(unreached.size());
  result.set_found(absl::StrCat("reaches ", reached, " of ", peers.peers_size()));
}

}  // namespace weft
