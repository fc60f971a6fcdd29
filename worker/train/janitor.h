// Janitor: cleans the checkpoint folder up behind a run, on a thread of its own, so that neither
// the time that it takes nor what goes wrong there is training's. Used by one thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace weft {

class Janitor {
 public:
  // `keep`: checkpoints that stay. `warn` hears of what could not be done, from the thread; it may
  // be empty.
  Janitor(std::string folder, std::string run_id, int64_t generation, int keep,
          std::function<void(const std::string&)> warn);
  ~Janitor();  // waits for nothing: what is under way may go on behind it
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // Once `step` is committed, or given up by all ranks; returns at once. While it cleans, later
  // steps wait for one more round.
  void CleanUpAfter(int64_t step);
  // Until it is through, at most that long: a disk may hang.
  void Finish(std::chrono::milliseconds patience);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace weft
