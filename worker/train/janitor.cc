#include "worker/train/janitor.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "checkpoint/clean_up.h"

namespace weft {

struct Janitor::Shared {
  std::string folder;
  CleanUpRun run;
  int keep = 0;
  std::function<void(const std::string&)> warn;

  std::mutex mutex;  // guards all below, and whether `warn` may be called
  std::condition_variable changed;
  std::optional<int64_t> asked;
  bool busy = false;
  bool leaving = false;

  // The thread's.
  void Work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return asked || leaving; });
      if (leaving) return;
      CleanUpRun now = run;
      now.step = *std::exchange(asked, std::nullopt);
      busy = true;
      lock.unlock();
      const CleanedUp done = CleanUp(folder, now, keep);
      lock.lock();
      busy = false;
      changed.notify_all();
      if (leaving) return;
      for (const std::string& problem : done.problems) {
        if (warn) warn("clean-up of checkpoints: " + problem);
      }
    }
  }
};

Janitor::Janitor(std::string folder, std::string run_id, int64_t generation, int keep,
                 std::function<void(const std::string&)> warn)
    : shared_(std::make_shared<Shared>()) {
  shared_->folder = std::move(folder);
  shared_->run = {.run_id = std::move(run_id), .generation = generation, .step = 0};
  shared_->keep = keep;
  shared_->warn = std::move(warn);
  std::thread([shared = shared_] { shared->Work(); }).detach();
}

Janitor::~Janitor() {
  const std::lock_guard lock(shared_->mutex);
  shared_->leaving = true;
  shared_->changed.notify_all();
}

void Janitor::CleanUpAfter(int64_t step) {
  const std::lock_guard lock(shared_->mutex);
  shared_->asked = step;
  shared_->changed.notify_all();
}

void Janitor::Finish(std::chrono::milliseconds patience) {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, patience, [&] { return !shared_->asked && !shared_->busy; });
}

}  // namespace weft
