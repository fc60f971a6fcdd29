#include "bench/control_mutations.h"

#include <fcntl.h>
#include <grpcpp/client_context.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/weftd_process.h"
#include "plan/errors.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr int kConnections = 8;
constexpr int kWaits = 200;  // for the disk

// Returns what one write of 4 KiB and the wait for it cost, in ms, each time: appended, as SQLite
// does.
absl::StatusOr<std::vector<double>> WaitsForTheDisk(const std::string& folder) {
  const std::string path = folder + "/waits";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(absl::StrCat(path, ": cannot be made"));
  const std::string page(4096, 'x');
  std::vector<double> waits_ms;
  bool is_well = true;
  for (int i = 0; i < kWaits && is_well; ++i) {
    const auto start = std::chrono::steady_clock::now();
    is_well = write(file, page.data(), page.size()) == static_cast<ssize_t>(page.size()) &&
              fdatasync(file) == 0;
    waits_ms.push_back(SecondsSince(start) * 1000);
  }
  close(file);
  if (!is_well) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return waits_ms;
}

// A caller that has one mutation under way at all times. Lives until it is done.
class ChangingCaller final {
 public:
  using Clock = std::chrono::steady_clock;
  ChangingCaller(int number, v1::Control::Stub& control, const std::string& folder,
                 Clock::time_point end)
      : number_(number), control_(control), folder_(folder), end_(end) {}

  void Start() { Next(); }
  bool is_done() const { return done_; }
  // REQUIRES: it is done.
  const std::vector<double>& took_ms() const { return took_ms_; }
  const absl::Status& status() const { return status_; }

 private:
  void Next() {
    if (!status_.ok() || (Clock::now() >= end_ && wish_ % 4 == 0)) {
      done_ = true;
      return;
    }
    context_ = std::make_unique<grpc::ClientContext>();
    SetDeadline(*context_, 20000);
    start_ = Clock::now();
    const std::string id = absl::StrCat("caller-", number_, "-", wish_);
    const auto answered = [this](const grpc::Status& status) { Answered(status); };
    auto& async = *control_.async();
    switch (wish_ % 4) {
      case 0:
        submit_ = SmallSubmission(id, absl::StrCat(folder_, "/run-", number_, "-", wish_));
        return async.Submit(context_.get(), &submit_, &submitted_, answered);
      case 1:
        pause_.set_request_id(id);
        pause_.set_job_id(submitted_.job_id());
        return async.Pause(context_.get(), &pause_, &job_, answered);
      case 2:
        resume_.set_request_id(id);
        resume_.set_job_id(submitted_.job_id());
        return async.Resume(context_.get(), &resume_, &job_, answered);
      default:
        stop_.set_request_id(id);
        stop_.set_job_id(submitted_.job_id());
        return async.Stop(context_.get(), &stop_, &job_, answered);
    }
  }
  void Answered(const grpc::Status& status) {
    took_ms_.push_back(SecondsSince(start_) * 1000);
    status_ = FromGrpc(status);
    ++wish_;
    Next();
  }

  const int number_;
  v1::Control::Stub& control_;
  const std::string folder_;
  const Clock::time_point end_;
  int64_t wish_ = 0;
  Clock::time_point start_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::SubmitRequest submit_;
  v1::SubmitReply submitted_;
  v1::PauseRequest pause_;
  v1::ResumeRequest resume_;
  v1::StopRequest stop_;
  v1::Job job_;
  absl::Status status_;
  std::vector<double> took_ms_;
  std::atomic<bool> done_ = false;
};

absl::Status QueueJobs(v1::Control::Stub& control, const std::string& folder, int count) {
  for (int i = 0; i < count; ++i) {
    grpc::ClientContext context;
    SetDeadline(context, 20000);
    v1::SubmitReply reply;
    const v1::SubmitRequest request =
        SmallSubmission(absl::StrCat("waits-", i), absl::StrCat(folder, "/waits-", i));
    RETURN_IF_ERROR(FromGrpc(control.Submit(&context, request, &reply)));
  }
  return absl::OkStatus();
}

void PrintMutations(const std::vector<double>& took_ms, double seconds, double cpu_s,
                    const std::vector<double>& waits_ms, int queued) {
  std::printf("mutations: %.0f a second, p50 %.2f ms, p99 %.2f ms, with %d jobs queued beside\n",
              static_cast<double>(took_ms.size()) / seconds, ValueAtShare(took_ms, 0.5),
              ValueAtShare(took_ms, 0.99), queued);
  std::printf("           weftd takes %.2f of a core, %.0f us a mutation\n", cpu_s / seconds,
              cpu_s / static_cast<double>(took_ms.size()) * 1e6);
  std::printf("disk: 4 KiB and fdatasync p50 %.2f ms, p99 %.2f ms\n", ValueAtShare(waits_ms, 0.5),
              ValueAtShare(waits_ms, 0.99));
  std::fflush(stdout);
}

}  // namespace

absl::Status MeasureMutations(const ControlBenchOptions& options) {
  ASSIGN_OR_RETURN(const auto folder, BenchFolder::Make(options.folder));
  ASSIGN_OR_RETURN(const std::vector<double> waits_ms, WaitsForTheDisk(folder->path()));
  const WeftdProcess weftd(options.weftd, folder->path(),
                           {"--state=" + folder->path() + "/state", "--calls-per-second=0"});
  RETURN_IF_ERROR(WaitForControl(weftd.Target(), 20).status());
  std::vector<std::unique_ptr<v1::Control::Stub>> controls;
  for (int i = 0; i < kConnections; ++i) {
    ASSIGN_OR_RETURN(controls.emplace_back(), ConnectControl(weftd.Target()));
  }
  RETURN_IF_ERROR(QueueJobs(*controls.front(), folder->path(), options.queued));
  const double cpu_s = weftd.CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  const auto end = start + std::chrono::milliseconds(static_cast<int64_t>(options.seconds * 1000));
  std::vector<std::unique_ptr<ChangingCaller>> callers;
  for (int i = 0; i < options.in_flight; ++i) {
    callers.push_back(std::make_unique<ChangingCaller>(
        i, *controls[static_cast<size_t>(i % kConnections)], folder->path(), end));
    callers.back()->Start();
  }
  std::vector<double> took_ms;
  absl::Status status;
  for (const auto& caller : callers) {
    while (!caller->is_done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    took_ms.insert(took_ms.end(), caller->took_ms().begin(), caller->took_ms().end());
    status.Update(caller->status());
  }
  RETURN_IF_ERROR(status);
  PrintMutations(took_ms, SecondsSince(start), weftd.CpuSeconds() - cpu_s, waits_ms,
                 options.queued);
  return absl::OkStatus();
}

}  // namespace weft
