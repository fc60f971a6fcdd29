#include "bench/control_watchers.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/simulated_agent.h"
#include "bench/simulated_host.h"
#include "bench/weftd_process.h"
#include "plan/errors.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr int kDurablePerS = 20;
constexpr double kWarmUpS = 2;
constexpr double kCatchUpS = 20;

// Durable says how many durable events were told, and which in which order.
struct Durable {
  int64_t count = 0;
  size_t digest = 0;
  bool operator==(const Durable&) const = default;

  void Take(const v1::Event& event) {
    ++count;
    const std::string text = absl::StrCat(digest, " ", event.revision(), " ", event.job_id(), " ",
                                          static_cast<int>(event.event_case()));
    digest = std::hash<std::string>()(text);
  }
};

class JobWatcher final : public grpc::ClientReadReactor<v1::WatchReply> {
 public:
  // `measures` outlives it: only while it is set, lateness is kept.
  JobWatcher(std::unique_ptr<v1::Control::Stub> control, int64_t after_revision,
             const std::atomic<bool>& measures)
      : control_(std::move(control)), measures_(measures) {
    request_.set_after_revision(after_revision);
    control_->async()->Watch(&context_, &request_, this);
    StartRead(&reply_);
    StartCall();
  }
  ~JobWatcher() override { End(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const int64_t now_us = UnixTimeUs();
    for (const v1::Event& event : reply_.events()) {
      if (!event.has_step()) durable_.Take(event);
      if (!measures_) continue;
      std::vector<double>& late_ms = event.has_step() ? steps_late_ms_ : durable_late_ms_;
      const int64_t since_us = event.has_step() ? event.step().tokens() : event.unix_ms() * 1000;
      late_ms.push_back(static_cast<double>(now_us - since_us) / 1000);
    }
    revision_ = reply_.revision();
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  int64_t revision() const { return revision_; }
  void End() {
    context_.TryCancel();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  // REQUIRES, of these three: End.
  const Durable& durable() const { return durable_; }
  const std::vector<double>& steps_late_ms() const { return steps_late_ms_; }
  const std::vector<double>& durable_late_ms() const { return durable_late_ms_; }

 private:
  grpc::ClientContext context_;
  v1::WatchRequest request_;
  v1::WatchReply reply_;
  const std::unique_ptr<v1::Control::Stub> control_;
  const std::atomic<bool>& measures_;
  std::atomic<int64_t> revision_ = 0;
  Durable durable_;
  std::vector<double> steps_late_ms_;
  std::vector<double> durable_late_ms_;
  std::mutex mutex_;  // guards done_
  bool done_ = false;
  std::condition_variable changed_;
};

// Jobs that train on one simulated host, each with an agent of its own.
class TrainingJobs final {
 public:
  explicit TrainingJobs(int count)
      : count_(count), host_("h0", count, [this](const proto::StartAgent& start) {
          const std::lock_guard<std::mutex> lock(mutex_);
          wanted_.push_back(start);
          started_.Add();
        }) {}
  ~TrainingJobs() { counts_.is_over = true; }

  // Returns once all of them train.
  absl::Status Start(const std::string& target, const std::string& folder) {
    RETURN_IF_ERROR(host_.Dial(target));
    ASSIGN_OR_RETURN(const auto control, ConnectControl(target));
    for (int i = 0; i < count_; ++i) {
      grpc::ClientContext context;
      SetDeadline(context, 20000);
      v1::SubmitReply reply;
      const v1::SubmitRequest request =
          SmallSubmission(absl::StrCat("job-", i), absl::StrCat(folder, "/run-", i));
      RETURN_IF_ERROR(FromGrpc(control->Submit(&context, request, &reply)));
    }
    if (!started_.WaitFor(count_)) return absl::DeadlineExceededError("not all jobs were placed");
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const proto::StartAgent& start : wanted_) {
      agents_.push_back(std::make_unique<SimulatedAgent>(
          SimulatedAgentOptions{
              .host = "h0", .job_id = start.job_id(), .allocation = start.allocation()},
          counts_));
      RETURN_IF_ERROR(agents_.back()->Dial(target));
    }
    if (counts_.begun.WaitFor(count_)) return absl::OkStatus();
    return absl::DeadlineExceededError("not all jobs have begun to train");
  }

  // Says that steps are done, evenly, and asks for leases once a second, until it is stopped.
  void Train(const std::stop_token& stop, int steps_per_s) {
    auto next = std::chrono::steady_clock::now();
    for (int64_t tick = 0; !stop.stop_requested(); ++tick) {
      if (tick % steps_per_s == 0) {
        host_.Beat();
        for (const auto& agent : agents_) agent->Beat();
      }
      const auto share = std::chrono::nanoseconds(1'000'000'000 / steps_per_s / count_);
      for (const auto& agent : agents_) {
        std::this_thread::sleep_until(next += share);
        agent->SayStep();
      }
    }
  }

 private:
  const int count_;
  AgentCounts counts_;
  Counter started_;
  std::mutex mutex_;  // guards wanted_
  std::vector<proto::StartAgent> wanted_;
  SimulatedHost host_;
  std::vector<std::unique_ptr<SimulatedAgent>> agents_;
};

// Pauses and resumes one that waits, until it is stopped: each is a durable event.
absl::Status PauseAndResume(const std::stop_token& stop, v1::Control::Stub& control,
                            const std::string& folder) {
  grpc::ClientContext submit_context;
  SetDeadline(submit_context, 20000);
  v1::SubmitReply submitted;
  RETURN_IF_ERROR(FromGrpc(control.Submit(
      &submit_context, SmallSubmission("waits", folder + "/run-waits"), &submitted)));
  auto next = std::chrono::steady_clock::now();
  for (int wish = 0; !stop.stop_requested(); ++wish) {
    std::this_thread::sleep_until(next += std::chrono::milliseconds(1000 / kDurablePerS));
    grpc::ClientContext context;
    SetDeadline(context, 20000);
    v1::PauseRequest pause;
    v1::ResumeRequest resume;
    pause.set_job_id(submitted.job_id());
    resume.set_job_id(submitted.job_id());
    pause.set_request_id(absl::StrCat("wish-", wish));
    resume.set_request_id(absl::StrCat("wish-", wish));
    v1::Job job;
    RETURN_IF_ERROR(FromGrpc(wish % 2 == 0 ? control.Pause(&context, pause, &job)
                                           : control.Resume(&context, resume, &job)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NewestRevision(v1::Control::Stub& control) {
  grpc::ClientContext context;
  SetDeadline(context, 20000);
  v1::ListReply reply;
  v1::ListRequest request;
  request.set_page_size(1);
  RETURN_IF_ERROR(FromGrpc(control.List(&context, request, &reply)));
  return reply.revision();
}

using Watchers = std::vector<std::unique_ptr<JobWatcher>>;

bool CatchUp(const Watchers& watchers, int64_t revision) {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& watcher : watchers) {
    while (watcher->revision() < revision && SecondsSince(start) < kCatchUpS) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return std::all_of(watchers.begin(), watchers.end(),
                     [&](const auto& watcher) { return watcher->revision() >= revision; });
}

void PrintLateness(const char* what, const std::vector<double>& late_ms) {
  if (late_ms.empty()) return;
  std::printf("%s: %zu told, late by p50 %.1f ms, p99 %.1f ms\n", what, late_ms.size(),
              ValueAtShare(late_ms, 0.5), ValueAtShare(late_ms, 0.99));
}

// `witness` is told later what all of them were told live.
absl::Status Judge(const Watchers& watchers, const Durable& witness) {
  std::vector<double> steps_ms;
  std::vector<double> durable_ms;
  int64_t wrong = 0;
  for (const auto& watcher : watchers) {
    wrong += watcher->durable() == witness ? 0 : 1;
    const auto& steps = watcher->steps_late_ms();
    const auto& durable = watcher->durable_late_ms();
    steps_ms.insert(steps_ms.end(), steps.begin(), steps.end());
    durable_ms.insert(durable_ms.end(), durable.begin(), durable.end());
  }
  PrintLateness("durable events", durable_ms);
  PrintLateness("steps", steps_ms);
  std::printf("lost: %lld of %zu watchers were told other durable events than the %lld there are\n",
              static_cast<long long>(wrong), watchers.size(),
              static_cast<long long>(witness.count));
  std::fflush(stdout);
  return wrong == 0 ? absl::OkStatus() : absl::DataLossError("durable events were lost");
}

}  // namespace

absl::Status MeasureWatchers(const ControlBenchOptions& options) {
  ASSIGN_OR_RETURN(const auto folder, BenchFolder::Make(options.folder));
  const WeftdProcess weftd(options.weftd, folder->path(), {"--state=" + folder->path() + "/state"});
  RETURN_IF_ERROR(WaitForControl(weftd.Target(), 20).status());
  TrainingJobs jobs(options.jobs);
  RETURN_IF_ERROR(jobs.Start(weftd.Target(), folder->path()));
  ASSIGN_OR_RETURN(const auto control, ConnectControl(weftd.Target()));
  ASSIGN_OR_RETURN(const int64_t before, NewestRevision(*control));
  std::atomic<bool> measures = false;
  Watchers watchers;
  for (int i = 0; i < options.watchers; ++i) {
    ASSIGN_OR_RETURN(auto stub, ConnectControl(weftd.Target()));
    watchers.push_back(std::make_unique<JobWatcher>(std::move(stub), before, measures));
  }
  const std::jthread training(
      [&](const std::stop_token& stop) { jobs.Train(stop, options.steps_per_s); });
  absl::Status mutated;
  std::jthread mutating([&](const std::stop_token& stop) {
    mutated = PauseAndResume(stop, *control, folder->path());
  });
  std::this_thread::sleep_for(std::chrono::duration<double>(kWarmUpS));
  measures = true;
  const double cpu_s = weftd.CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  measures = false;
  std::printf("watchers: %d of %d jobs with %d steps a second each: %.2f of a core\n",
              options.watchers, options.jobs, options.steps_per_s,
              (weftd.CpuSeconds() - cpu_s) / SecondsSince(start));
  mutating.request_stop();
  mutating.join();
  RETURN_IF_ERROR(mutated);
  ASSIGN_OR_RETURN(const int64_t last, NewestRevision(*control));
  if (!CatchUp(watchers, last)) return absl::DeadlineExceededError("watchers were left behind");
  ASSIGN_OR_RETURN(auto stub, ConnectControl(weftd.Target()));
  Watchers witness;
  witness.push_back(std::make_unique<JobWatcher>(std::move(stub), before, measures));
  if (!CatchUp(witness, last)) return absl::DeadlineExceededError("the witness was left behind");
  for (const auto& watcher : watchers) watcher->End();
  witness.front()->End();
  return Judge(watchers, witness.front()->durable());
}

}  // namespace weft
