#include "tests/coordinator/in_process.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/rpc.h"
#include "process/version.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {
namespace {
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

proto::AgentReport RankEndedReport(int64_t generation, int rank, int signal) {
  proto::AgentReport report;
  report.mutable_rank_ended()->set_generation(generation);
  report.mutable_rank_ended()->mutable_cause()->set_rank(rank);
  report.mutable_rank_ended()->mutable_cause()->set_signal(signal);
  return report;
}

proto::AgentReport GroupEndedReport(int64_t generation, bool clean) {
  proto::AgentReport report;
  report.mutable_group_ended()->set_generation(generation);
  report.mutable_group_ended()->set_clean(clean);
  report.mutable_group_ended()->mutable_cause()->set_rank(-1);
  return report;
}

// Each agent is a process of its own, it says.
int64_t NextPid() {
  static std::atomic<int64_t> pid = 1000;
  return ++pid;
}

// Each wish has an id of its own.
std::string NextWish() {
  static std::atomic<int64_t> wish = 0;
  return absl::StrCat("wish-", ++wish);
}

std::string NewFolder() {
  std::string name = std::filesystem::temp_directory_path() / "weft-coordinator-XXXXXX";
  CHECK(mkdtemp(name.data()) != nullptr);
  return name;
}

}  // namespace

InProcessCoordinator::InProcessCoordinator(std::optional<int64_t> lease_ms,
                                           const StandingClock* clock)
    : lease_ms_(lease_ms), clock_(clock), folder_(NewFolder()) {}

InProcessCoordinator::~InProcessCoordinator() {
  Stop();
  std::filesystem::remove_all(folder_);
}

absl::Status InProcessCoordinator::Start() {
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, Journal::Open(this->journal()));
  DriverOptions options;
  options.version = Version();
  options.lease_ms = lease_ms_;
  options.now_ms = clock();
  options.max_queued_bytes = max_queued_bytes_;
  options.writes_tokens = false;
  options.check_again_ms = check_again_ms_;
  ASSIGN_OR_RETURN(driver_, Driver::Start(std::move(journal), std::move(options)));
  ASSIGN_OR_RETURN(service_, RunService::Start(socket(), Version(), *driver_));
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, OpenChannel(target()));
  control_ = v1::Control::NewStub(channel);
  return absl::OkStatus();
}

void InProcessCoordinator::Stop() {
  control_.reset();
  service_.reset();
  driver_.reset();
}

std::function<int64_t()> InProcessCoordinator::clock() const {
  if (clock_ == nullptr) return BootTimeMs;
  return [clock = clock_] { return clock->now_ms(); };
}

void InProcessCoordinator::HoldDriver(const std::shared_future<void>& until) {
  driver_->GetJob(proto::JobRequest(), [until](const absl::StatusOr<proto::JobStatus>&) {
    until.wait_for(milliseconds(kPatienceMs));
  });
}

absl::StatusOr<std::string> InProcessCoordinator::Submit(const std::string& request_id,
                                                         const JobSpec& job,
                                                         std::optional<Layout> layout) {
  v1::SubmitRequest request;
  request.set_request_id(request_id);
  request.set_brings_hosts(true);
  JobSpec submitted = job;
  submitted.fault_tolerance.preflight = checks_hosts_;
  request.mutable_submission()->set_job(JobText(submitted));
  request.mutable_submission()->set_run_folder("/run");
  if (layout) *request.mutable_submission()->mutable_layout() = ToProto(*layout).properties();
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  v1::SubmitReply reply;
  RETURN_IF_ERROR(FromGrpc(control_->Submit(&context, request, &reply)));
  return reply.job_id();
}

absl::StatusOr<v1::Job> InProcessCoordinator::Status() {
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  v1::Job status;
  RETURN_IF_ERROR(FromGrpc(control_->Get(&context, {}, &status)));
  return status;
}

absl::Status InProcessCoordinator::StopJob(bool now) {
  v1::StopRequest request;
  request.set_request_id(NextWish());
  request.set_level(now ? v1::StopRequest::NOW : v1::StopRequest::SAVE);
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  v1::Job reply;
  return FromGrpc(control_->Stop(&context, request, &reply));
}

absl::Status InProcessCoordinator::Checkpoint() {
  v1::CheckpointRequest request;
  request.set_request_id(NextWish());
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  v1::Job reply;
  return FromGrpc(control_->Checkpoint(&context, request, &reply));
}

bool InProcessCoordinator::WaitForPhase(const std::string& phase) {
  const Clock::time_point end = Clock::now() + milliseconds(kPatienceMs);
  while (Clock::now() < end) {
    const absl::StatusOr<v1::Job> status = Status();
    if (status.ok() && status->phase() == phase) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

std::vector<v1::Event> InProcessCoordinator::Watch(int64_t after_revision, size_t count,
                                                   absl::Status* status) {
  v1::WatchRequest request;
  request.set_after_revision(after_revision);
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  const auto stream = control_->Watch(&context, request);
  std::vector<v1::Event> events;
  v1::WatchReply reply;
  while (events.size() < count && stream->Read(&reply)) {
    events.insert(events.end(), reply.events().begin(), reply.events().end());
  }
  if (events.size() >= count) context.TryCancel();
  events.resize(std::min(events.size(), count));
  *status = FromGrpc(stream->Finish());
  return events;
}

RawAgent::RawAgent(const std::string& target, const Self& self) {
  stub_ = proto::AgentLink::NewStub(*OpenChannel(target));
  stream_ = stub_->Attach(&context_);
  reader_ = std::thread([this] { Read(); });
  proto::AgentReport report;
  proto::Hello& hello = *report.mutable_hello();
  hello.set_version(self.version);
  hello.set_wire_version(self.wire_version);
  hello.set_host("here");
  hello.set_machine(self.machine);
  hello.set_pid(NextPid());
  hello.set_generation(self.generation);
  hello.mutable_host_has()->set_mpi(self.mpi);
  stream_->Write(report);
}

RawAgent::~RawAgent() {
  context_.TryCancel();
  reader_.join();
}

void RawAgent::Say(proto::AgentReport report) {
  if (report.sequence() == 0) report.set_sequence(++sequence_);
  stream_->Write(report);
}

void RawAgent::RankEnded(int64_t generation, int rank, int signal) {
  Say(RankEndedReport(generation, rank, signal));
}
void RawAgent::GroupEnded(int64_t generation, bool clean) {
  Say(GroupEndedReport(generation, clean));
}

absl::StatusOr<proto::AgentOrder> RawAgent::NextOrder(int64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, milliseconds(timeout_ms), [&] { return !orders_.empty() || ended_; });
  if (orders_.empty()) return absl::DeadlineExceededError("no order came");
  proto::AgentOrder order = orders_.front();
  orders_.pop_front();
  return order;
}

int RawAgent::WaitForTrains(int streams) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, milliseconds(kPatienceMs), [&] { return trains_ >= streams; });
  return trains_;
}

int64_t RawAgent::acknowledged() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return acknowledged_;
}

bool RawAgent::is_welcome() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_welcome_;
}

absl::Status RawAgent::WaitForEnd() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, milliseconds(kPatienceMs), [&] { return ended_; })) {
      return absl::DeadlineExceededError("the stream goes on");
    }
  }
  return FromGrpc(stream_->Finish());
}

void RawAgent::Read() {
  proto::AgentOrder order;
  while (stream_->Read(&order)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    acknowledged_ = std::max(acknowledged_, order.acknowledged());
    is_welcome_ = is_welcome_ || order.has_welcome();
    if (order.has_launch() || order.has_stop_group()) orders_.push_back(order);
    proto::Order told;
    const bool parsed = told.ParseFromString(order.to_ranks().order());
    if (parsed && told.has_train()) trains_ += order.to_ranks().streams_size();
    changed_.notify_all();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

InProcessHost::InProcessHost(const InProcessCoordinator& coordinator, const std::string& machine,
                             const std::string& name)
    : folder_(NewFolder()), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  AgentLinkOptions options;
  options.coordinator = coordinator.target();
  options.rank_socket = folder_ + "/ranks.sock";
  options.wake_fd = wake_;
  options.now_ms = coordinator.clock();
  options.hello.set_version(Version());
  options.hello.set_wire_version(kWireVersion);
  options.hello.set_host(name);
  options.hello.set_machine(machine);
  options.hello.set_pid(NextPid());
  auto link = AgentLink::Start(std::move(options));
  CHECK(link.ok());
  link_ = *std::move(link);
}

InProcessHost::~InProcessHost() {
  link_.reset();
  close(wake_);
  std::filesystem::remove_all(folder_);
}

void InProcessHost::Say(proto::AgentReport report) {
  report.set_sequence(++sequence_);
  link_->Say(report);
}
void InProcessHost::RankEnded(int64_t generation, int rank, int signal) {
  Say(RankEndedReport(generation, rank, signal));
}
void InProcessHost::GroupEnded(int64_t generation, bool clean) {
  Say(GroupEndedReport(generation, clean));
}
void InProcessHost::AskToSave() {
  proto::AgentReport report;
  report.mutable_save_requested();
  Say(report);
}

void InProcessHost::WantDaemon(int64_t generation, const std::string& host,
                               const std::vector<std::string>& args) {
  proto::AgentReport report;
  report.mutable_daemon_wanted()->set_generation(generation);
  report.mutable_daemon_wanted()->set_host(host);
  for (const std::string& arg : args) report.mutable_daemon_wanted()->add_args(arg);
  Say(report);
}

bool InProcessHost::AwaitOrder(int64_t timeout_ms) {
  const Clock::time_point end = Clock::now() + milliseconds(timeout_ms);
  while (orders_.empty() && Clock::now() < end) {
    pollfd wake{wake_, POLLIN, 0};
    poll(&wake, 1, 20);
    uint64_t count = 0;
    if (read(wake_, &count, sizeof(count)) < 0) continue;
    for (proto::AgentOrder& order : link_->Take()) orders_.push_back(std::move(order));
  }
  return !orders_.empty();
}

absl::StatusOr<proto::AgentOrder> InProcessHost::NextOrder(int64_t timeout_ms) {
  if (!AwaitOrder(timeout_ms)) return absl::DeadlineExceededError("no order came");
  proto::AgentOrder order = orders_.front();
  orders_.pop_front();
  return order;
}

bool InProcessHost::WaitForLease() const {
  const int64_t before_ms = lease_end_ms();
  const Clock::time_point end = Clock::now() + milliseconds(kPatienceMs);
  while (lease_end_ms() == before_ms && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return lease_end_ms() != before_ms;
}

bool InProcessHost::WaitForLeaseTo(int64_t end_ms) const {
  const Clock::time_point end = Clock::now() + milliseconds(kPatienceMs);
  while (lease_end_ms() < end_ms && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return lease_end_ms() >= end_ms;
}

absl::Status InProcessHost::WaitForRefusal() {
  const Clock::time_point end = Clock::now() + milliseconds(kPatienceMs);
  while (!link_->refused() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
  return link_->refused().value_or(absl::DeadlineExceededError("the stream goes on"));
}

RawWorker::RawWorker(const std::string& target, int64_t generation, int rank, int world_size,
                     const std::string& version)
    : generation_(generation), rank_(rank) {
  stub_ = proto::WorkerLink::NewStub(*OpenChannel(target));
  stream_ = stub_->Attach(&context_);
  reader_ = std::thread([this] { Read(); });
  proto::WorkerReport report;
  report.mutable_register_()->set_host("here");
  report.mutable_register_()->set_pid(100 * generation + rank);
  report.mutable_register_()->set_version(version);
  report.mutable_register_()->set_world_size(world_size);
  Say(report);
}

RawWorker::~RawWorker() {
  context_.TryCancel();
  reader_.join();
}

void RawWorker::Say(proto::WorkerReport report) {
  report.set_rank(rank_);
  report.set_generation(generation_);
  const std::lock_guard<std::mutex> lock(write_mutex_);
  stream_->Write(report);
}

bool RawWorker::IsHeard() {
  const std::string topic = absl::StrCat("word-", ++words_);
  proto::WorkerReport report;
  report.mutable_note()->set_topic(topic);
  report.mutable_note()->add_to(rank_);
  Say(report);
  const auto is_back = [&](const proto::Note& note) { return note.topic() == topic; };
  return WaitFor([&](const proto::Order& order) {
           return std::any_of(order.notes().notes().begin(), order.notes().notes().end(), is_back);
         })
      .has_value();
}

std::optional<proto::Order> RawWorker::WaitFor(
    const std::function<bool(const proto::Order&)>& wanted) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<proto::Order> found;
  changed_.wait_for(lock, milliseconds(kPatienceMs), [&] {
    for (const proto::Order& order : orders_) {
      if (wanted(order)) found = order;
    }
    return found || ended_;
  });
  return found;
}

absl::Status RawWorker::WaitForEnd() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, milliseconds(kPatienceMs), [&] { return ended_; })) {
      return absl::DeadlineExceededError("the stream goes on");
    }
  }
  return FromGrpc(stream_->Finish());
}

void RawWorker::Read() {
  proto::Order order;
  while (stream_->Read(&order)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    orders_.push_back(order);
    changed_.notify_all();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

bool PassTime(StandingClock& clock, int64_t ms, int64_t lease_ms,
              const std::vector<const InProcessHost*>& hosts,
              const std::vector<RawWorker*>& ranks) {
  const int64_t steps = ms * 2 / lease_ms + 1;
  for (int64_t step = 0; step < steps; ++step) {
    clock.Pass(ms * (step + 1) / steps - ms * step / steps);
    for (const InProcessHost* host : hosts) {
      if (!host->WaitForLeaseTo(clock.now_ms() + lease_ms)) return false;
    }
    for (RawWorker* rank : ranks) {
      if (!rank->IsHeard()) return false;
    }
  }
  return true;
}

}  // namespace weft
