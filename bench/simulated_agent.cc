#include "bench/simulated_agent.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/rpc.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr std::chrono::seconds kLimit{100};

}  // namespace

int64_t UnixTimeUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Counter::Add(int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  count_ += count;
  changed_.notify_all();
}

bool Counter::WaitFor(int64_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, kLimit, [&] { return count_ >= count || over_; });
}

void Counter::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

absl::Status SimulatedAgent::Dial(const std::string& target, const BundleSource& bundle) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, OpenChannel(target, bundle));
  stub_ = proto::AgentLink::NewStub(channel);
  stub_->async()->Attach(&context_, this);
  proto::AgentReport report;
  report.mutable_hello()->set_version(Version());
  report.mutable_hello()->set_wire_version(kWireVersion);
  report.mutable_hello()->set_host(options_.host);
  report.mutable_hello()->set_machine(absl::StrCat("machine-", options_.host));
  report.mutable_hello()->set_pid(getpid());
  report.mutable_hello()->set_job_id(options_.job_id);
  report.mutable_hello()->set_allocation(options_.allocation);
  report.mutable_hello()->set_sent_boot_ms(BootTimeMs());
  report.mutable_hello()->mutable_host_has()->add_addresses("10.0.0.1");
  AddHold();
  StartRead(&order_);
  Say(std::move(report));
  StartCall();
  dialed_ = true;
  return absl::OkStatus();
}

void SimulatedAgent::Beat() {
  proto::AgentReport report;
  report.mutable_heartbeat()->set_sent_boot_ms(BootTimeMs());
  for (int i = 0; trains_ && i < options_.ranks; ++i) report.mutable_heartbeat()->add_heard(i + 1);
  Say(std::move(report));
}

SimulatedAgent::~SimulatedAgent() {
  if (!dialed_) return;
  context_.TryCancel();
  RemoveHold();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

void SimulatedAgent::OnReadDone(bool ok) {
  if (!ok) return;
  Take();
  StartRead(&order_);
}

void SimulatedAgent::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.pop_front();
  if (ok && !queue_.empty()) StartWrite(&queue_.front());
}

void SimulatedAgent::OnDone(const grpc::Status& status) {
  if (!status.ok() && !counts_.is_over && !counts_.refused.exchange(true)) {
    std::fprintf(stderr, "%s: %s\n", options_.host.c_str(), status.error_message().c_str());
    counts_.welcomed.End();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void SimulatedAgent::Take() {
  if (order_.has_lease()) ++counts_.leases;
  if (order_.has_welcome()) counts_.welcomed.Add();
  if (order_.has_launch()) Launch(order_.launch());
  if (order_.has_check_host()) Open(order_.check_host());
  if (order_.has_check_peers()) {
    counts_.dials += order_.check_peers().peers_size();
    counts_.order_bytes += static_cast<int64_t>(order_.ByteSizeLong());
    SayChecked(order_.check_peers().round());
  }
  if (!order_.has_to_ranks()) return;
  proto::Order order;
  CHECK(order.ParseFromString(order_.to_ranks().order()));
  if (order.has_train()) {
    trains_ = true;
    counts_.told.Add(order_.to_ranks().streams_size());
    for (const int64_t stream : order_.to_ranks().streams()) SayReady(stream);
  }
  if (!order.has_begin()) return;
  begun_ = true;
  counts_.begun.Add(order_.to_ranks().streams_size());
}

// All is well here, and nobody is dialled.
void SimulatedAgent::Open(const proto::CheckHost& order) {
  counts_.order_bytes += static_cast<int64_t>(order_.ByteSizeLong());
  if (!order.has_peers()) return SayChecked(order.round());
  proto::AgentReport report;
  report.set_sequence(++sequence_);
  report.mutable_check_opened()->set_round(order.round());
  report.mutable_check_opened()->set_address("10.0.0.1");
  report.mutable_check_opened()->set_port(40000);
  Say(std::move(report));
}

void SimulatedAgent::SayChecked(int64_t round) {
  proto::AgentReport report;
  report.set_sequence(++sequence_);
  proto::HostChecked& checked = *report.mutable_host_checked();
  checked.set_round(round);
  checked.set_product_flops_per_s(50e9);
  for (const char* name : {"devices", "shared memory", "run folder", "checkpoints", "network",
                           "memory", "clock", "data"}) {
    checked.add_results()->set_name(name);
    checked.mutable_results()->rbegin()->set_found("as it should be");
  }
  Say(std::move(report));
}

void SimulatedAgent::Launch(const proto::Launch& launch) {
  generation_ = launch.generation();
  for (const proto::HostRanks& host : launch.hosts()) {
    if (host.host() == options_.host) mine_.assign(host.ranks().begin(), host.ranks().end());
  }
  for (size_t i = 0; i < mine_.size(); ++i) {
    proto::WorkerReport report;
    report.set_sequence(1);
    report.mutable_register_()->set_host(options_.host);
    report.mutable_register_()->set_pid(1000 + mine_[i]);
    report.mutable_register_()->set_version(Version());
    report.mutable_register_()->set_world_size(launch.world_size());
    SayFrom(static_cast<int64_t>(i) + 1, std::move(report));
  }
}

void SimulatedAgent::SayReady(int64_t stream) {
  proto::WorkerReport report;
  report.set_sequence(2);
  report.mutable_ready();
  SayFrom(stream, std::move(report));
}

void SimulatedAgent::SayFrom(int64_t stream, proto::WorkerReport report) {
  report.set_rank(mine_[static_cast<size_t>(stream - 1)]);
  report.set_generation(generation_);
  proto::AgentReport envelope;
  envelope.mutable_from_rank()->set_stream(stream);
  report.SerializeToString(envelope.mutable_from_rank()->mutable_report());
  Say(std::move(envelope));
}

void SimulatedAgent::Say(proto::AgentReport report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(report));
  if (queue_.size() == 1) StartWrite(&queue_.front());
}

void SimulatedAgent::SayStep() {
  if (!begun_ || mine_.empty() || mine_.front() != 0) return;
  proto::WorkerReport report;
  report.set_sequence(2 + ++step_);  // after Register and Ready
  proto::StepDone& done = *report.mutable_step();
  done.set_step(step_);
  done.set_loss(5.5 - 1e-6 * static_cast<double>(step_));
  done.set_grad_norm(1.25);
  done.set_lr(1e-3);
  done.set_tokens(UnixTimeUs());
  done.set_step_s(0.05);
  done.set_peak_bytes(int64_t{100} << 20);
  SayFrom(1, std::move(report));
}

JobSpec SmallJob(int hosts, int ranks) {
  JobSpec job;
  job.name = "small";
  job.output_dir = "/tmp/weft";
  SetArchitecture(Architecture::kGpt2, job.model);
  job.model.vocab_size = 256;
  job.model.hidden_size = 256;
  job.model.num_blocks = 2;
  job.model.num_heads = job.model.num_kv_heads = 4;
  job.model.head_dim = 64;
  job.model.ffn_size = 1024;
  job.model.max_positions = 256;
  job.data.train = {{.path = "/tmp/weft/corpus.txt"}};
  job.training.seq_len = 256;
  job.training.global_batch_size = int64_t{hosts} * ranks;
  job.training.steps = 100;
  job.cluster.name = "small";
  job.cluster.nodes = hosts;
  job.cluster.slots_per_node = ranks;
  job.cluster.cores_per_node = ranks;
  job.cluster.device = {.name = "slot",
                        .memory_bytes = int64_t{16} << 30,
                        .library_bytes = int64_t{256} << 20,
                        .peak_flops_per_s = {.fp32 = 50e9},
                        .peak_memory_bytes_per_s = 10e9,
                        .op_overhead_s = 2e-6};
  job.cluster.intra_node = {.latency_s = 5e-6, .bytes_per_s = 4e9};
  job.cluster.inter_node = {.latency_s = 30e-6, .bytes_per_s = 1e9};
  job.fault_tolerance.heartbeat_timeout_seconds = kSmallJobLeaseS;
  job.fault_tolerance.preflight = false;  // connections are up, hosts are known
  return job;
}

}  // namespace weft
