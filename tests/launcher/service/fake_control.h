// FakeControl is a weftd as people's tools see it (weft.v1), with what a test puts into it: it
// decides nothing, and keeps what it was asked. Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

struct FakeControlState {
  std::vector<v1::Job> jobs;  // newest first
  std::vector<v1::Host> hosts;
  std::vector<v1::Event> events;      // of all jobs
  std::vector<v1::LogsReply> pieces;  // of logs
  int64_t revision = 0;               // that List and Watch end with
  int64_t oldest_revision = 0;        // before this Watch answers OUT_OF_RANGE
  int refusals = 0;                   // so many calls, or streams, are answered with `refusal`
  absl::Status refusal = absl::UnavailableError("closing");
  int events_a_stream = 0;  // so many, then it breaks; 0: all
  bool lasts = false;       // Watch goes on after the events until it is cancelled
};

class FakeControl {
 public:
  explicit FakeControl(const std::string& socket);
  ~FakeControl();
  FakeControl(const FakeControl&) = delete;
  FakeControl& operator=(const FakeControl&) = delete;

  void Set(const FakeControlState& state);
  // It was asked this, oldest first: "Stop {request_id: ...}", the refused too.
  std::vector<std::string> asked() const;
  v1::SubmitRequest submitted() const;  // the newest
  void Forget();                        // what it was asked

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace weft
