// CallLimits keeps one caller from taking weftd away from the others: calls in a second, streams
// that are open, plans that are being made. Callers are told apart by name and user id; those of
// one certificate, or of one user, are one. Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

struct CallLimitOptions {
  int calls_per_s = 1000;  // of one caller, and twice as many at once; 0: no limit
  int streams = 400;       // Watch and Logs, of one caller
  int logs = 64;           // those of them that are Logs, each of which has a thread
  int connections = 500;   // to the socket, of one user
  int plans = 1;           // of one caller
  int plans_of_all = 4;    // each takes a core for up to seconds
};

class CallLimits {
 public:
  explicit CallLimits(const CallLimitOptions& options) : options_(options) {}
  CallLimits(const CallLimits&) = delete;
  CallLimits& operator=(const CallLimits&) = delete;

  // ResourceExhausted, with the limit and when to ask again. `now_ms` never goes back.
  absl::Status TakeCall(const std::string& caller, int64_t now_ms);

  // A Held is given back when its last copy goes, which must not outlive the limits.
  using Held = std::shared_ptr<void>;
  absl::StatusOr<Held> TakeStream(const std::string& caller);
  // A reader of logs counts as a stream, too.
  absl::StatusOr<Held> TakeLogs(const std::string& caller);
  absl::StatusOr<Held> TakePlan(const std::string& caller);

 private:
  struct Budget {
    double calls = 0;       // that may be made at once
    int64_t since_ms = -1;  // when they were counted; -1: never
    int streams = 0;
    int logs = 0;
    int plans = 0;
  };
  // One more of what `counted` counts.
  absl::StatusOr<Held> Hold(const std::string& caller, int Budget::*counted, int most,
                            const char* what);
  // Callers that have nothing open and could make all their calls again need not be remembered.
  void Forget(int64_t now_ms);

  const CallLimitOptions options_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Budget> budgets_;
  int plans_ = 0;
  int64_t forgot_ms_ = 0;
};

}  // namespace weft
