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
  awaited_.erase(stream);
}

std::optional<int64_t> LeaseBook::Grant(int64_t stream, int64_t now_ms, bool has_promise) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = machine_of_stream_.find(stream);
  if (found == machine_of_stream_.end()) return std::nullopt;
  if (has_promise) {
    awaited_.erase(stream);
  } else {
    promised_ms_.erase(found->second);
  }
  int64_t& end_ms = end_ms_[found->second];
  end_ms = std::max(end_ms, now_ms + lease_ms_);
  return lease_ms_;
}

void LeaseBook::Assume(const std::string& machine, int64_t end_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t& known_ms = end_ms_[machine];
  known_ms = std::max(known_ms, end_ms);
}

void LeaseBook::Promise(const std::string& machine, int64_t end_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  promised_ms_[machine] = end_ms;
}

bool LeaseBook::HasPromise(const std::string& machine) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return promised_ms_.count(machine) > 0;
}

void LeaseBook::AwaitPromise(int64_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (machine_of_stream_.count(stream) > 0) awaited_.insert(stream);
}

bool LeaseBook::AllHavePromises() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return awaited_.empty();
}

int64_t LeaseBook::EndOf(const std::string& machine) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = end_ms_.find(machine);
  const auto promised = promised_ms_.find(machine);
  return std::max(found == end_ms_.end() ? 0 : found->second,
                  promised == promised_ms_.end() ? 0 : promised->second);
}

}  // namespace weft
