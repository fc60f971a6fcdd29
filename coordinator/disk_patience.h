// DiskPatience: decides when a journal that the disk had no room for is written again, and when
// there is no sense in waiting any more. Time is an argument.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace weft {

class DiskPatience final {
 public:
  // `meanwhile`: what does not go on, for the log.
  explicit DiskPatience(std::string meanwhile) : meanwhile_(std::move(meanwhile)) {}

  // Calls `append`, which writes all of the `waiting` facts or none, unless it is too early to try
  // again. `*written`: it has. Fails if they can never be written any more, or if too many wait.
  absl::Status Try(int64_t now_ms, size_t waiting, const std::function<absl::Status()>& append,
                   bool* written);

  // Returns why facts wait; OK: none do.
  const absl::Status& behind() const { return behind_; }

 private:
  const std::string meanwhile_;
  absl::Status behind_;
  int64_t tried_ms_ = 0;
};

}  // namespace weft
