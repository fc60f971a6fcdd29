// This relay carries what the coordinator carries between ranks, for ranks that are threads of a
// test.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "worker/backend/backend.h"
#include "worker/backend/failure.h"

namespace weft {

// ThreadNotes has the notes of all ranks; every note reaches all. Thread-safe.
class ThreadNotes {
 public:
  void Put(const char* topic, int from, const void* data, int bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    notes_[{topic, from}].assign(static_cast<const char*>(data), static_cast<size_t>(bytes));
    changed_.notify_all();
  }
  BackendStatus Get(const char* topic, int from, int64_t timeout_ms, void* data, int bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::pair<std::string, int> key(topic, from);
    const auto there = [&] { return notes_.count(key) > 0; };
    if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), there)) {
      return Failure(kDeadlineExceeded, "no word of %s from rank %d", topic, from);
    }
    const std::string& note = notes_[key];
    if (note.size() != static_cast<size_t>(bytes)) return Failure(kInternal, "another length");
    std::memcpy(data, note.data(), note.size());
    return {};
  }

 private:
  std::mutex mutex_;  // guards notes_
  std::condition_variable changed_;
  std::map<std::pair<std::string, int>, std::string> notes_;  // by topic and sender
};

// One rank's way to them.
class ThreadRelay final : public Relay {
 public:
  ThreadRelay(ThreadNotes& notes, int rank) : notes_(notes), rank_(rank) {}

  BackendStatus Send(const char* topic, const int* /*to*/, int /*count*/, const void* data,
                     int bytes) override {
    notes_.Put(topic, rank_, data, bytes);
    return {};
  }
  BackendStatus Receive(const char* topic, int from, int64_t timeout_ms, void* data,
                        int bytes) override {
    return notes_.Get(topic, from, timeout_ms, data, bytes);
  }

 private:
  ThreadNotes& notes_;
  const int rank_;
};

}  // namespace weft
