#include "coordinator/lease_book.h"

#include <algorithm>

namespace weft {

void LeaseBook::SetLength(int64_t lease_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lease_ms_ = lease_ms;
}

void LeaseBook::Admit(int64_t stream, const std::string& machine) {
  const std::lock_guard<std::mutex> lock(mutex_);
  machine_of_stream_[stream] = machine;
}

void LeaseBook::Dismiss(int64_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  machine_of_stream_.erase(stream);
}

std::optional<int64_t> LeaseBook::Grant(int64_t stream, int64_t now_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = machine_of_stream_.find(stream);
  if (found == machine_of_stream_.end()) return std::nullopt;
  int64_t& end_ms = end_ms_[found->second];
  end_ms = std::max(end_ms, now_ms + lease_ms_);
  return lease_ms_;
}

void LeaseBook::Assume(const std::string& machine, int64_t end_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t& known_ms = end_ms_[machine];
  known_ms = std::max(known_ms, end_ms);
}

int64_t LeaseBook::EndOf(const std::string& machine) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = end_ms_.find(machine);
  return found == end_ms_.end() ? 0 : found->second;
}

}  // namespace weft
