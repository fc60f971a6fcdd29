#include "launcher/slurm/host_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/slurm/failed_hosts.h"
#include "launcher/slurm/run_record.h"

namespace weft {

HostBook::HostBook(HostBookOptions options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

HostBook::~HostBook() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostBook::Take(const std::string& host, const absl::Status& state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    facts_.push_back({host, state, options_.now_unix_s()});
  }
  changed_.notify_all();
}

void HostBook::TakeCheck(const std::string& host, const absl::Status& state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_news = state.ok() ? faulty_.erase(host) > 0 : faulty_.insert(host).second;
    if (!is_news) return;
  }
  Take(host, state);
}

void HostBook::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !facts_.empty(); });
    if (facts_.empty()) return;
    const std::vector<Fact> facts = std::exchange(facts_, {});
    lock.unlock();
    TakeDown(facts);
    lock.lock();
  }
}

// Slurm is asked once for all that are lost together.
void HostBook::TakeDown(const std::vector<Fact>& facts) const {
  bool counts = false;
  if (std::any_of(facts.begin(), facts.end(), [](const Fact& each) { return !each.state.ok(); })) {
    const absl::StatusOr<SlurmJob> job = options_.ask();
    counts = job.ok() && job->state == "RUNNING" && !IsPreempted(*job);
  }
  SlurmRunRecord record = RecordFor(options_.run_folder, options_.job_id);
  bool changes = false;
  for (const Fact& fact : facts) {
    if (fact.state.ok()) {
      changes |= TakeReturn(fact.host, &record.failed_hosts);
    } else if (counts) {
      const absl::string_view words = *absl::StrSplit(fact.state.message(), '\n').begin();
      TakeFailure(fact.host, absl::StripPrefix(words, absl::StrCat("host ", fact.host, ": ")),
                  fact.unix_s, &record.failed_hosts);
      changes = true;
    }
  }
  if (!changes) return;
  const absl::Status written = WriteSlurmRun(options_.run_folder, record);
  if (!written.ok()) options_.warn(std::string(written.message()));
}

}  // namespace weft
