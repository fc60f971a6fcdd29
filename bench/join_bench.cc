// This program measures how fast many ranks join, and what they cost the coordinator: a real weftd,
// and in this process simulated agents, each with its own connection and its ranks behind it.
// - join: from the instant at which weftd has recorded the launch (its STARTING event) until every
//   rank was told what to train; all of it durable, with weftd's own journal on the disk;
// - begin: from then until all have said that they are ready and were told to begin;
// - memory: the resident set of weftd with all of them training, less that before the first came,
//   by rank;
// - heartbeats: the processor time that weftd takes while every agent asks for its lease each
//   second, its ranks named in it;
// - with --preflight, the check of all hosts before the launch: from the submission until the
// launch,
//   and the processor time that weftd takes for it; agents answer at once and dial nobody;
// - with --tls, cold connections: from the first dial until all are welcomed, over TLS both ways.
//
// build/release/bench/join_bench [--agents N] [--ranks N] [--preflight] [--tls] [--beats SECONDS]
// [--weftd FILE] Works in a folder of its own, which it removes. 12,500 agents need as many open
// files.
#include <grpcpp/client_context.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "bench/simulated_agent.h"
#include "bench/weftd_process.h"
#include "plan/errors.h"
#include "process/authority.h"
#include "process/rpc.h"
#include "proto/job_text.h"
#include "proto/weft/v1/control.grpc.pb.h"
#include "proto/wire.h"

namespace weft {
namespace {

struct Options {
  int agents = 1250;
  int ranks = 8;  // behind each agent
  int beats_s = 10;
  bool preflight = false;
  bool tls = false;
  std::string weftd;
  std::string folder;
};

v1::SubmitRequest RequestFor(const Options& options) {
  v1::SubmitRequest request;
  request.set_request_id("join");
  request.set_brings_hosts(true);
  JobSpec job = SmallJob(options.agents, options.ranks);
  job.fault_tolerance.preflight = options.preflight;
  v1::Submission& submission = *request.mutable_submission();
  submission.set_job(JobText(job));
  submission.set_run_folder("/tmp/weft");
  *submission.mutable_layout() = ToProto(Layout{.dp = options.agents * options.ranks}).properties();
  return request;
}

// Follows the job until `phase`; when that was, by weftd's clock.
absl::StatusOr<int64_t> TimeOf(v1::Control::Stub& control, const std::string& phase) {
  grpc::ClientContext context;
  SetDeadline(context, 300000);
  const auto stream = control.Watch(&context, v1::WatchRequest());
  v1::WatchReply reply;
  while (stream->Read(&reply)) {
    for (const v1::Event& event : reply.events()) {
      if (!event.has_phase()) continue;
      if (event.phase().phase() == phase) {
        context.TryCancel();
        return event.unix_ms();
      }
      if (event.phase().phase() == "FAILED") return absl::InternalError(event.phase().reason());
    }
  }
  return absl::UnavailableError("weftd says no more");
}

class JoinBench {
 public:
  explicit JoinBench(Options options) : options_(std::move(options)) {}
  ~JoinBench() {
    counts_.is_over = true;
    agents_.clear();
  }

  absl::Status Run() {
    ASSIGN_OR_RETURN(std::vector<std::string> more, PrepareTls());
    more.push_back("--journal=" + options_.folder + "/journal.db");
    WeftdProcess weftd(options_.weftd, options_.folder, more);
    RETURN_IF_ERROR(WaitForDoor());
    const int64_t before_bytes = weftd.ResidentBytes();
    RETURN_IF_ERROR(Connect());
    std::jthread beats([this](const std::stop_token& stop) { BeatAll(stop); });
    if (!options_.tls) {
      RETURN_IF_ERROR(Join(weftd));
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
      control_ = v1::Control::NewStub(*channel);
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
      agents_.push_back(std::make_unique<SimulatedAgent>(
          SimulatedAgentOptions{.host = absl::StrCat("h", i), .ranks = options_.ranks}, counts_));
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

  absl::Status Join(const WeftdProcess& weftd) {
    grpc::ClientContext context;
    SetDeadline(context, 300000);
    v1::SubmitReply reply;
    const int64_t submitted_ms = absl::ToUnixMillis(absl::Now());
    const double cpu_s = weftd.CpuSeconds();
    RETURN_IF_ERROR(FromGrpc(control_->Submit(&context, RequestFor(options_), &reply)));
    ASSIGN_OR_RETURN(const int64_t launched_ms, TimeOf(*control_, "STARTING"));
    if (options_.preflight) {
      std::printf(
          "preflight: %d hosts in %.3f s, %.2f s of weftd's processor time, %lld dials, "
          "%.1f MB of orders\n",
          options_.agents, static_cast<double>(launched_ms - submitted_ms) / 1000,
          weftd.CpuSeconds() - cpu_s, static_cast<long long>(counts_.dials),
          static_cast<double>(counts_.order_bytes) / 1e6);
      std::fflush(stdout);
    }
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
  std::atomic<int64_t> beat_ms_ = kSmallJobLeaseS * 1000 / 8;
  AgentCounts counts_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::vector<std::unique_ptr<SimulatedAgent>> agents_;
};

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  options.weftd = std::filesystem::canonical("/proc/self/exe").parent_path() / "../bin/weftd";
  CLI::App app("how fast many ranks join, and what they cost", "join_bench");
  app.add_option("--agents", options.agents, "simulated agents")->check(CLI::Range(1, 100000));
  app.add_option("--ranks", options.ranks, "ranks behind each")->check(CLI::Range(1, 1000));
  app.add_option("--beats", options.beats_s, "seconds of heartbeats")->check(CLI::Range(1, 600));
  app.add_flag("--preflight", options.preflight, "have all hosts checked before the launch");
  app.add_flag("--tls", options.tls, "measure cold connections over TLS instead");
  app.add_option("--weftd", options.weftd, "another build's coordinator");
  CLI11_PARSE(app, argc, argv);
  const auto folder = weft::BenchFolder::Make(std::filesystem::temp_directory_path());
  absl::Status status = folder.status();
  if (status.ok()) {
    options.folder = (*folder)->path();
    weft::AllowManyFiles();
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as weftd does
    status = weft::JoinBench(options).Run();
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "join_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
