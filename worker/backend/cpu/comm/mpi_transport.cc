#include "worker/backend/cpu/comm/mpi_transport.h"

#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "worker/backend/failure.h"

namespace weft {
namespace {

// The one place that turns MPI's codes into statuses.
BackendStatus FromMpi(int code, const char* call, int peer) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Failure(kUnavailable, "%s with rank %d failed: %.160s", call, peer, text);
}

// Open MPI opens plugins that expect its symbols to be global, while the backend itself is opened
// privately: raise the library that holds MPI_Init_thread, whatever its name.
void MakeMpiSymbolsGlobal() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

// MPI_Init waits for all processes and cannot be told for how long, so a thread of its own waits.
BackendStatus Init(int64_t timeout_ms) {
  int already = 0;
  MPI_Initialized(&already);
  if (already != 0) return Failure(kInternal, "the communicator was opened twice");
  MakeMpiSymbolsGlobal();
  std::promise<std::pair<int, int>> promise;  // MPI's code, thread level
  std::future<std::pair<int, int>> started = promise.get_future();
  std::thread([promise = std::move(promise)]() mutable {
    int provided = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    promise.set_value({code, provided});
  }).detach();
  if (started.wait_for(std::chrono::milliseconds(timeout_ms)) != std::future_status::ready) {
    return Failure(kDeadlineExceeded,
                   "MPI did not start within %lld ms: not all ranks have come; look at the logs of "
                   "the others",
                   static_cast<long long>(timeout_ms));
  }
  const auto [code, provided] = started.get();
  if (code != MPI_SUCCESS) return FromMpi(code, "MPI_Init_thread", -1);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Failure(kUnavailable, "this MPI cannot be used by another thread than its first one");
  }
  return FromMpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                 "MPI_Comm_set_errhandler", -1);
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size_);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int64_t max_message_bytes() const override { return 1 << 30; }  // MPI counts in int

  BackendStatus Send(int peer, int tag, const void* data, int64_t bytes, int* request) override {
    Started& started = NewRequest(peer, -1, request);
    return Checked(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                             &started.request),
                   "send", request);
  }
  BackendStatus Receive(int peer, int tag, void* data, int64_t bytes, int* request) override {
    Started& started = NewRequest(peer, bytes, request);
    return Checked(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                             &started.request),
                   "receive", request);
  }

  BackendStatus Test(int request, bool* done) override {
    Started& started = started_[static_cast<size_t>(request)];
    int flag = 0;
    MPI_Status status;
    const int code = MPI_Test(&started.request, &flag, &status);
    const int peer = started.peer;
    const int64_t expected_bytes = started.expected_bytes;
    if (code != MPI_SUCCESS) {
      free_.push_back(request);
      return FromMpi(code, "transfer", peer);
    }
    *done = flag != 0;
    if (!*done) return {};
    free_.push_back(request);
    if (expected_bytes < 0) return {};
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes == expected_bytes) return {};
    return Failure(kInternal, "rank %d sent rank %d %d bytes where %lld were due", peer, rank_,
                   bytes, static_cast<long long>(expected_bytes));
  }

  void Cancel(int request) override {
    Started& started = started_[static_cast<size_t>(request)];
    if (started.expected_bytes >= 0) MPI_Cancel(&started.request);
    MPI_Request_free(&started.request);
    free_.push_back(request);
  }

 private:
  struct Started {
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = 0;
    int64_t expected_bytes = -1;  // of a receive
  };

  Started& NewRequest(int peer, int64_t expected_bytes, int* request) {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(started_.size()));
      started_.emplace_back();
    }
    *request = free_.back();
    free_.pop_back();
    Started& started = started_[static_cast<size_t>(*request)];
    started = {.peer = peer, .expected_bytes = expected_bytes};
    return started;
  }

  BackendStatus Checked(int code, const char* call, const int* request) {
    if (code == MPI_SUCCESS) return {};
    free_.push_back(*request);
    return FromMpi(code, call, started_[static_cast<size_t>(*request)].peer);
  }

  int rank_ = 0;
  int world_size_ = 1;
  std::vector<Started> started_;  // by request; reused
  std::vector<int> free_;
};

}  // namespace

BackendStatus OpenMpiTransport(int64_t timeout_ms, std::unique_ptr<Transport>* transport) {
  if (BackendStatus s = Init(timeout_ms); !s.ok()) return s;
  *transport = std::make_unique<MpiTransport>();
  return {};
}

void FinalizeMpi() {
  MPI_Finalize();
}

const char* MpiVersion() {
  // "Open MPI v4.1.4, package: ..." -> "Open MPI 4.1.4"
  static const std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version_text = [] {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version(text.data());
    version = version.substr(0, version.find(','));
    if (const size_t v = version.find(" v"); v != std::string::npos) version.erase(v + 1, 1);
    text.fill(0);
    std::copy(version.begin(), version.end(), text.begin());
    return text;
  }();
  return version_text.data();
}

}  // namespace weft
