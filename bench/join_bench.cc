// This program measures how fast many ranks join, and what they cost the coordinator: a real weftd,
// and in this process simulated agents, each with its own connection and its ranks behind it.
// - join: from the instant at which weftd has recorded the launch (its STARTING event) until every
//   rank was told what to train; all of it durable, with weftd's own journal on the disk;
// - begin: from then until all have said that they are ready and were told to begin;
// - memory: the resident set of weftd with all of them training, less that before the first came,
//   by rank;
// - heartbeats: the processor time that weftd takes while every agent asks for its lease each
//   second, its ranks named in it;
// - with --tls, cold connections: from the first dial until all are welcomed, over TLS both ways.
//
// build/release/bench/join_bench [--agents N] [--ranks N] [--tls] [--beats SECONDS] [--weftd FILE]
// Works in a folder of its own, which it removes. 12,500 agents need as many open files.
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "plan/errors.h"
#include "plan/spec/job_spec.h"
#include "process/authority.h"
#include "process/clock.h"
#include "process/rpc.h"
#include "process/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

constexpr std::chrono::seconds kLimit{100};
constexpr int kLeaseS = 60;  // this machine may be busy

struct Options {
  int agents = 1250;
  int ranks = 8;  // behind each agent
  int beats_s = 10;
  bool tls = false;
  std::string weftd;
  std::string folder;
};

// How many of something have come; others wait for it.
class Counter {
 public:
  void Add(int64_t count = 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_ += count;
    changed_.notify_all();
  }
  bool WaitFor(int64_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kLimit, [&] { return count_ >= count || over_; });
  }
  // Nobody waits any more.
  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t count_ = 0;
  bool over_ = false;
};

struct Counts {
  Counter welcomed;  // agents
  Counter told;      // ranks that know what to train
  Counter begun;     // ranks
  std::atomic<int64_t> leases = 0;
  std::atomic<bool> refused = false;  // an agent was
  std::atomic<bool> is_over = false;
};

// An agent and its ranks: it does what it is told, at once.
class SimulatedAgent final : public grpc::ClientBidiReactor<proto::AgentReport, proto::AgentOrder> {
 public:
  SimulatedAgent(int index, int ranks, Counts& counts)
      : name_(absl::StrCat("h", index)), ranks_(ranks), counts_(counts) {}

  absl::Status Dial(const std::string& target, const BundleSource& bundle) {
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, OpenChannel(target, bundle));
    stub_ = proto::AgentLink::NewStub(channel);
    stub_->async()->Attach(&context_, this);
    proto::AgentReport report;
    report.mutable_hello()->set_version(Version());
    report.mutable_hello()->set_wire_version(kWireVersion);
    report.mutable_hello()->set_host(name_);
    report.mutable_hello()->set_machine(absl::StrCat("machine-", name_));
    report.mutable_hello()->set_pid(getpid());
    report.mutable_hello()->set_sent_boot_ms(BootTimeMs());
    report.mutable_hello()->mutable_host_has()->add_addresses("10.0.0.1");
    AddHold();
    StartRead(&order_);
    Say(std::move(report));
    StartCall();
    dialed_ = true;
    return absl::OkStatus();
  }
  const std::string& name() const { return name_; }

  void Beat() {
    proto::AgentReport report;
    report.mutable_heartbeat()->set_sent_boot_ms(BootTimeMs());
    for (int i = 0; trains_ && i < ranks_; ++i) report.mutable_heartbeat()->add_heard(i + 1);
    Say(std::move(report));
  }

  ~SimulatedAgent() override {
    if (!dialed_) return;
    context_.TryCancel();
    RemoveHold();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    Take();
    StartRead(&order_);
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.pop_front();
    if (ok && !queue_.empty()) StartWrite(&queue_.front());
  }
  void OnDone(const grpc::Status& status) override {
    if (!status.ok() && !counts_.is_over && !counts_.refused.exchange(true)) {
      std::fprintf(stderr, "%s: %s\n", name_.c_str(), status.error_message().c_str());
      counts_.welcomed.End();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  void Take() {
    if (order_.has_lease()) ++counts_.leases;
    if (order_.has_welcome()) counts_.welcomed.Add();
    if (order_.has_launch()) Launch(order_.launch());
    if (!order_.has_to_ranks()) return;
    proto::Order order;
    CHECK(order.ParseFromString(order_.to_ranks().order()));
    if (order.has_train()) {
      trains_ = true;
      counts_.told.Add(order_.to_ranks().streams_size());
      for (const int64_t stream : order_.to_ranks().streams()) SayReady(stream);
    }
    if (order.has_begin()) counts_.begun.Add(order_.to_ranks().streams_size());
  }

  void Launch(const proto::Launch& launch) {
    generation_ = launch.generation();
    for (const proto::HostRanks& host : launch.hosts()) {
      if (host.host() == name_) mine_.assign(host.ranks().begin(), host.ranks().end());
    }
    for (size_t i = 0; i < mine_.size(); ++i) {
      proto::WorkerReport report;
      report.set_sequence(1);
      report.mutable_register_()->set_host(name_);
      report.mutable_register_()->set_pid(1000 + mine_[i]);
      report.mutable_register_()->set_version(Version());
      report.mutable_register_()->set_world_size(launch.world_size());
      SayFrom(static_cast<int64_t>(i) + 1, std::move(report));
    }
  }
  void SayReady(int64_t stream) {
    proto::WorkerReport report;
    report.set_sequence(2);
    report.mutable_ready();
    SayFrom(stream, std::move(report));
  }
  void SayFrom(int64_t stream, proto::WorkerReport report) {
    report.set_rank(mine_[static_cast<size_t>(stream - 1)]);
    report.set_generation(generation_);
    proto::AgentReport envelope;
    envelope.mutable_from_rank()->set_stream(stream);
    report.SerializeToString(envelope.mutable_from_rank()->mutable_report());
    Say(std::move(envelope));
  }
  void Say(proto::AgentReport report) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(report));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  const std::string name_;
  const int ranks_;
  Counts& counts_;
  grpc::ClientContext context_;
  std::unique_ptr<proto::AgentLink::Stub> stub_;
  proto::AgentOrder order_;  // of the reading thread, as the two below
  int64_t generation_ = 0;
  std::vector<int> mine_;
  std::atomic<bool> trains_ = false;
  std::mutex mutex_;  // guards the two below
  std::deque<proto::AgentReport> queue_;
  bool done_ = false;
  bool dialed_ = false;
  std::condition_variable changed_;
};

// weftd as a process of its own.
class Coordinator {
 public:
  Coordinator(const Options& options, const std::vector<std::string>& more) {
    std::vector<std::string> words = {options.weftd, "--socket=" + options.folder + "/weftd.sock",
                                      "--journal=" + options.folder + "/journal.db"};
    words.insert(words.end(), more.begin(), more.end());
    pid_ = fork();
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      CHECK(std::freopen((options.folder + "/weftd.log").c_str(), "w", stderr) != nullptr);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Coordinator() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  int64_t ResidentBytes() const {
    std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
    std::string word;
    int64_t kib = 0;
    while (status >> word && word != "VmRSS:") continue;
    status >> kib;
    return kib << 10;
  }
  double CpuSeconds() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream rest(text.substr(text.rfind(')') + 1));
    std::string word;
    double ticks = 0;
    for (int field = 3; rest >> word && field <= 15; ++field) {
      if (field >= 14) ticks += std::atof(word.c_str());
    }
    return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

 private:
  pid_t pid_ = -1;
};

// Small, on as many hosts as there are agents, dp alone.
proto::SubmitJobRequest RequestFor(const Options& options) {
  JobSpec job;
  job.name = "join";
  job.output_dir = "/tmp/weft";
  job.model.family = ModelFamily::kGpt2;
  job.model.vocab_size = 256;
  job.model.hidden_size = 256;
  job.model.num_blocks = 2;
  job.model.num_heads = job.model.num_kv_heads = 4;
  job.model.head_dim = 64;
  job.model.ffn_size = 1024;
  job.model.max_positions = 256;
  job.data.train = {{.path = "/tmp/weft/corpus.txt"}};
  job.training.seq_len = 256;
  job.training.global_batch_size = int64_t{options.agents} * options.ranks;
  job.training.steps = 100;
  job.cluster.name = "join";
  job.cluster.nodes = options.agents;
  job.cluster.slots_per_node = options.ranks;
  job.cluster.cores_per_node = options.ranks;
  job.cluster.device = {.name = "slot",
                        .memory_bytes = int64_t{16} << 30,
                        .library_bytes = int64_t{256} << 20,
                        .peak_flops_per_s = {.fp32 = 50e9},
                        .peak_memory_bytes_per_s = 10e9,
                        .op_overhead_s = 2e-6};
  job.cluster.intra_node = {.latency_s = 5e-6, .bytes_per_s = 4e9};
  job.cluster.inter_node = {.latency_s = 30e-6, .bytes_per_s = 1e9};
  job.fault_tolerance.heartbeat_timeout_seconds = kLeaseS;
  job.fault_tolerance.preflight = false;  // connections are up, hosts are known
  proto::SubmitJobRequest request;
  request.set_request_id("join");
  request.set_job(JobText(job));
  request.set_run_folder("/tmp/weft");
  *request.mutable_layout() = ToProto(Layout{.dp = options.agents * options.ranks});
  return request;
}

// Follows the job until `phase`; when that was, by weftd's clock.
absl::StatusOr<int64_t> TimeOf(proto::Control::Stub& control, const std::string& phase) {
  grpc::ClientContext context;
  SetDeadline(context, 300000);
  const auto stream = control.Watch(&context, proto::WatchRequest());
  proto::JobEvent event;
  while (stream->Read(&event)) {
    if (!event.has_phase()) continue;
    if (event.phase().phase() == phase) {
      context.TryCancel();
      return event.unix_ms();
    }
    if (event.phase().phase() == "FAILED") return absl::InternalError(event.phase().reason());
  }
  return absl::UnavailableError("weftd says no more");
}

class JoinBench {
 public:
  explicit JoinBench(Options options) : options_(std::move(options)) {}
  ~JoinBench() {
    counts_.is_over = true;
    agents_.clear();
    std::filesystem::remove_all(options_.folder);
  }

  absl::Status Run() {
    ASSIGN_OR_RETURN(const std::vector<std::string> more, PrepareTls());
    Coordinator weftd(options_, more);
    RETURN_IF_ERROR(WaitForDoor());
    const int64_t before_bytes = weftd.ResidentBytes();
    RETURN_IF_ERROR(Connect());
    std::jthread beats([this](const std::stop_token& stop) { BeatAll(stop); });
    if (!options_.tls) {
      RETURN_IF_ERROR(Join());
      const int64_t ranks = int64_t{options_.agents} * options_.ranks;
      std::printf("memory: %.2f KiB a rank\n",
                  static_cast<double>(weftd.ResidentBytes() - before_bytes) / 1024.0 /
                      static_cast<double>(ranks));
      beat_ms_ = 1000;
      std::this_thread::sleep_for(std::chrono::seconds(2));
      const double cpu_s = weftd.CpuSeconds();
      const int64_t leases = counts_.leases;
      std::this_thread::sleep_for(std::chrono::seconds(options_.beats_s));
      std::printf("heartbeats: %.3f of a core for %.0f a second\n",
                  (weftd.CpuSeconds() - cpu_s) / options_.beats_s,
                  static_cast<double>(counts_.leases - leases) / options_.beats_s);
    }
    counts_.is_over = true;
    return absl::OkStatus();
  }

 private:
  // One bundle for each host, as its name has to be in it.
  absl::StatusOr<std::vector<std::string>> PrepareTls() {
    if (!options_.tls) return std::vector<std::string>();
    ASSIGN_OR_RETURN(const Authority authority,
                     Authority::Create(options_.folder + "/ca", std::time(nullptr)));
    ASSIGN_OR_RETURN(const std::string server,
                     authority.Issue(BundleRole::kServer, {}, std::time(nullptr)));
    const std::string bundle = options_.folder + "/server.pem";
    std::ofstream(bundle) << server;
    chmod(bundle.c_str(), 0600);
    for (int i = 0; i < options_.agents; ++i) {
      ASSIGN_OR_RETURN(
          std::string issued,
          authority.Issue(BundleRole::kAgent, {absl::StrCat("h", i)}, std::time(nullptr)));
      bundles_.push_back(std::move(issued));
    }
    return std::vector<std::string>{"--listen=127.0.0.1:0", "--tls=" + bundle,
                                    "--revoked=" + authority.revoked_file(),
                                    "--port-file=" + options_.folder + "/port"};
  }

  absl::Status WaitForDoor() {
    const std::string socket = "unix:" + options_.folder + "/weftd.sock";
    for (int i = 0; i < 3000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const auto channel = OpenChannel(socket);
      if (!channel.ok()) continue;
      control_ = proto::Control::NewStub(*channel);
      target_ = socket;
      int port = 0;
      if (!options_.tls) return absl::OkStatus();
      if (std::ifstream(options_.folder + "/port") >> port) {
        target_ = absl::StrCat("127.0.0.1:", port);
        return absl::OkStatus();
      }
    }
    return absl::UnavailableError("weftd does not serve; see its log");
  }

  absl::Status Connect() {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < options_.agents; ++i) {
      agents_.push_back(std::make_unique<SimulatedAgent>(i, options_.ranks, counts_));
      RETURN_IF_ERROR(agents_.back()->Dial(
          target_,
          options_.tls ? BundleSource{.text = bundles_[static_cast<size_t>(i)]} : BundleSource()));
    }
    if (!counts_.welcomed.WaitFor(options_.agents) || counts_.refused) {
      return absl::DeadlineExceededError("not all agents were welcomed");
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("connect: %d agents in %.2f s%s\n", options_.agents, took.count(),
                options_.tls ? " (TLS both ways, cold)" : " (unix socket)");
    return absl::OkStatus();
  }

  // Each as often as an agent does under the job's lease, or once a second, evenly.
  void BeatAll(const std::stop_token& stop) {
    auto next = std::chrono::steady_clock::now();
    while (!stop.stop_requested()) {
      for (int slice = 0; slice < 100 && !stop.stop_requested(); ++slice) {
        next += std::chrono::milliseconds(beat_ms_ / 100);
        std::this_thread::sleep_until(next);
        const size_t count = agents_.size();
        for (size_t i = count * static_cast<size_t>(slice) / 100;
             i < count * (static_cast<size_t>(slice) + 1) / 100; ++i) {
          agents_[i]->Beat();
        }
      }
    }
  }

  absl::Status Join() {
    grpc::ClientContext context;
    SetDeadline(context, 300000);
    proto::SubmitJobReply reply;
    RETURN_IF_ERROR(FromGrpc(control_->SubmitJob(&context, RequestFor(options_), &reply)));
    ASSIGN_OR_RETURN(const int64_t launched_ms, TimeOf(*control_, "STARTING"));
    const int64_t ranks = int64_t{options_.agents} * options_.ranks;
    if (!counts_.told.WaitFor(ranks)) return absl::DeadlineExceededError("not all were told");
    const int64_t told_ms = absl::ToUnixMillis(absl::Now());
    if (!counts_.begun.WaitFor(ranks)) return absl::DeadlineExceededError("not all have begun");
    const int64_t begun_ms = absl::ToUnixMillis(absl::Now());
    std::printf("join: %lld ranks behind %d agents in %.3f s\nbegin: %.3f s later\n",
                static_cast<long long>(ranks), options_.agents,
                static_cast<double>(told_ms - launched_ms) / 1000,
                static_cast<double>(begun_ms - told_ms) / 1000);
    std::fflush(stdout);
    return absl::OkStatus();
  }

  const Options options_;
  std::string target_;
  std::vector<std::string> bundles_;
  std::atomic<int64_t> beat_ms_ = kLeaseS * 1000 / 8;
  Counts counts_;
  std::unique_ptr<proto::Control::Stub> control_;
  std::vector<std::unique_ptr<SimulatedAgent>> agents_;
};

void AllowManyFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  options.weftd = std::filesystem::canonical("/proc/self/exe").parent_path() / "../bin/weftd";
  CLI::App app("how fast many ranks join, and what they cost", "join_bench");
  app.add_option("--agents", options.agents, "simulated agents")->check(CLI::Range(1, 100000));
  app.add_option("--ranks", options.ranks, "ranks behind each")->check(CLI::Range(1, 1000));
  app.add_option("--beats", options.beats_s, "seconds of heartbeats")->check(CLI::Range(1, 600));
  app.add_flag("--tls", options.tls, "measure cold connections over TLS instead");
  app.add_option("--weftd", options.weftd, "another build's coordinator");
  CLI11_PARSE(app, argc, argv);
  std::string folder = std::filesystem::temp_directory_path() / "weft-join-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  options.folder = folder;
  weft::AllowManyFiles();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as weftd does
  const absl::Status status = weft::JoinBench(options).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "join_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
