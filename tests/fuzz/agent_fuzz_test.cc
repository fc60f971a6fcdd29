// Streams of agents that say anything in any order, to a weftd that serves jobs: with the right
// tokens and with others, of several hosts and jobs at once, hung up at any moment. None of them
// ends weftd, and none without a token is let in.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/service/fleet_service.h"
#include "process/rpc.h"
#include "process/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/fleet.grpc.pb.h"
#include "proto/job_text.h"
#include "proto/weft/v1/control.grpc.pb.h"
#include "tests/end_to_end/child.h"
#include "tests/fuzz/random_message.h"
#include "tests/fuzz/trial.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

constexpr int kHosts = 2;
constexpr int kStreamsAtOnce = 4;
constexpr size_t kMostReports = 40;
constexpr int64_t kCallMs = 60000;

std::string HostName(int host) {
  return absl::StrCat("h", host);
}
std::string MachineName(int host) {
  return absl::StrCat("m", host);
}

JobSpec JobOnAllHosts(const std::string& folder) {
  JobSpec job = SampleJob();
  job.output_dir = folder;
  job.cluster.nodes = kHosts;
  job.cluster.slots_per_node = 1;
  job.fault_tolerance.preflight = false;
  job.fault_tolerance.max_restarts = 1000;
  job.training.global_batch_size = 12;
  return job;
}

// A weftd of this process, whose hosts are offered by one stream for each, and on which a job
// always runs, or is about to.
class AgentFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-agent-fuzz-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    fleet_ = FleetDriver::Start({.version = "test", .state_folder = folder_ + "/state"}).value();
    service_ = FleetService::Start({.socket = folder_ + "/s", .version = "test"}, *fleet_).value();
    control_ = v1::Control::NewStub(Dial());
    for (int host = 0; host < kHosts; ++host) offers_.emplace_back([this, host] { Offer(host); });
    KeepAJob();
  }
  void TearDown() override {
    closing_ = true;
    for (std::thread& each : offers_) each.join();
    service_.reset();
    fleet_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::shared_ptr<grpc::Channel> Dial() const {
    return OpenChannel("unix:" + folder_ + "/s").value();
  }

  // Stands for the standing agent: keeps the host offered, and the tokens that it is told.
  void Offer(int host) {
    grpc::ClientContext context;
    const auto stub = proto::FleetLink::NewStub(Dial());
    const auto stream = stub->Offer(&context);
    proto::OfferReport report;
    proto::HostOffer& offer = *report.mutable_offer();
    offer.set_wire_version(kWireVersion);
    offer.set_host(HostName(host));
    offer.set_machine(MachineName(host));
    offer.set_slots(1);
    offer.set_gives_tokens(true);
    stream->Write(report);
    std::thread reader([&] {
      proto::OfferOrder order;
      while (stream->Read(&order)) TakeOrder(host, order, *stream);
    });
    while (!closing_) {
      proto::OfferReport heartbeat;
      heartbeat.mutable_heartbeat();
      {
        const std::lock_guard lock(mutex_);
        if (!stream->Write(heartbeat)) break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    context.TryCancel();
    reader.join();
    stream->Finish();
  }
  // An agent that is to end has ended.
  template <typename Stream>
  void TakeOrder(int host, const proto::OfferOrder& order, Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (order.has_start_agent()) started_[host] = order.start_agent();
    if (!order.has_stop_agent()) return;
    proto::OfferReport report;
    report.set_sequence(++sequence_);
    report.mutable_agent_ended()->set_job_id(order.stop_agent().job_id());
    report.mutable_agent_ended()->set_allocation(order.stop_agent().allocation());
    stream.Write(report);
  }

  // Submits another job where none is left.
  void KeepAJob() {
    grpc::ClientContext context;
    SetDeadline(context, kCallMs);
    v1::ListReply jobs;
    const absl::Status listed = FromGrpc(control_->List(&context, {}, &jobs));
    ASSERT_EQ(listed, absl::OkStatus()) << "weftd answers no more";
    for (const v1::Job& job : jobs.jobs()) {
      ASSERT_NE(job.phase(), "COMPLETED") << "an end was forged: " << job.ShortDebugString();
      if (job.ended_unix_ms() == 0) return;
    }
    v1::SubmitRequest request;
    request.set_request_id(absl::StrCat("wish-", ++wishes_));
    const std::string folder = absl::StrCat(folder_, "/run-", wishes_);
    request.mutable_submission()->set_job(JobText(JobOnAllHosts(folder)));
    request.mutable_submission()->set_run_folder(folder);
    grpc::ClientContext submitting;
    SetDeadline(submitting, kCallMs);
    v1::SubmitReply reply;
    const absl::Status submitted = FromGrpc(control_->Submit(&submitting, request, &reply));
    ASSERT_EQ(submitted, absl::OkStatus());
    EXPECT_TRUE(Eventually(kPatienceS, [&] { return Started(0).job_id() == reply.job_id(); }));
  }
  proto::StartAgent Started(int host) {
    const std::lock_guard lock(mutex_);
    return started_[host];
  }

  proto::Hello HelloOf(int host) {
    const proto::StartAgent started = Started(host);
    proto::Hello hello;
    hello.set_version(Version());
    hello.set_wire_version(kWireVersion);
    hello.set_host(HostName(host));
    hello.set_machine(MachineName(host));
    hello.set_pid(4711);
    hello.set_slots(1);
    hello.set_job_id(started.job_id());
    hello.set_allocation(started.allocation());
    hello.set_token(started.token());
    return hello;
  }

  std::string folder_;
  std::atomic<bool> closing_ = false;
  std::atomic<int64_t> generation_ = 1;  // newest that some agent was told to launch
  std::unique_ptr<FleetDriver> fleet_;
  std::unique_ptr<FleetService> service_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::vector<std::thread> offers_;
  std::mutex mutex_;  // guards the two below
  std::map<int, proto::StartAgent> started_;
  int64_t sequence_ = 0;
  int wishes_ = 0;
};

// How a stream begins: with a Hello that nobody believes; as the host's own agent would; or so that
// the job trains before anything strange is said.
enum class Beginning { kWithoutRight, kWithRight, kTraining };

class RandomAgent {
 public:
  RandomAgent(std::shared_ptr<grpc::Channel> channel, proto::Hello hello, Beginning beginning,
              uint64_t seed, std::atomic<int64_t>& generation)
      : stub_(proto::AgentLink::NewStub(channel)),
        hello_(std::move(hello)),
        beginning_(beginning),
        random_(seed),
        generation_(generation) {}

  void Run() {
    stream_ = stub_->Attach(&context_);
    std::thread reader([this] { Read(); });
    const size_t reports = random_.Below(kMostReports);
    if (beginning_ == Beginning::kTraining) {
      BeginToTrain();
    } else if (!random_.Once(8)) {
      stream_->Write(First());
    }
    for (size_t i = 0; i < reports; ++i) {
      if (!stream_->Write(Next())) break;
      if (random_.Once(4)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (random_.Once(2)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (random_.Once(2)) stream_->WritesDone();
    context_.TryCancel();
    reader.join();
    status_ = FromGrpc(stream_->Finish());
  }
  bool was_welcome() const { return was_welcome_; }
  // Told to start ranks, and to have them train.
  bool was_launched() const { return was_launched_; }
  bool has_trained() const { return has_trained_; }

 private:
  void Read() {
    proto::AgentOrder order;
    while (stream_->Read(&order)) {
      if (order.has_welcome() || order.has_lease()) was_welcome_ = true;
      if (order.has_to_ranks()) has_trained_ = has_trained_ || IsTrain(order.to_ranks().order());
      if (!order.has_launch()) continue;
      was_launched_ = true;
      generation_ = order.launch().generation();
      for (const proto::HostRanks& host : order.launch().hosts()) {
        if (host.machine() == hello_.machine() && !host.ranks().empty()) rank_ = host.ranks(0);
      }
    }
  }

  // The job trains as soon as the other host's agent has come as far.
  void BeginToTrain() {
    constexpr double kSeconds = 1;
    stream_->Write(First());
    if (!Eventually(kSeconds, [&] { return was_launched_.load(); })) return;
    proto::WorkerReport report;
    *report.mutable_register_() = Registration();
    stream_->Write(FromRank(report));
    if (!Eventually(kSeconds, [&] { return has_trained_.load(); })) return;
    report.mutable_ready();
    stream_->Write(FromRank(report));
  }
  proto::Register Registration() const {
    proto::Register registration;
    registration.set_host(hello_.host());
    registration.set_pid(4712);
    registration.set_world_size(kHosts);
    registration.set_version(hello_.version());
    return registration;
  }
  proto::AgentReport FromRank(proto::WorkerReport report) const {
    report.set_rank(rank_);
    report.set_generation(generation_);
    proto::AgentReport envelope;
    envelope.mutable_from_rank()->set_report(report.SerializeAsString());
    return envelope;
  }

  static bool IsTrain(const std::string& text) {
    proto::Order order;
    return order.ParseFromString(text) && order.has_train();
  }

  proto::AgentReport First() {
    proto::AgentReport report;
    *report.mutable_hello() = hello_;
    if (beginning_ == Beginning::kWithoutRight) Spoil(*report.mutable_hello());
    return report;
  }
  // It is another agent's, or nobody's.
  void Spoil(proto::Hello& hello) {
    switch (random_.Below(4)) {
      case 0:
        return hello.clear_token();
      case 1:
        return hello.set_token(std::string(hello.token().rbegin(), hello.token().rend()));
      case 2:
        return hello.set_machine("m7");
      default:
        return hello.set_allocation(hello_.allocation() + 1);
    }
  }

  LikelyValues Likely() const {
    return {{0, 1, generation_, generation_ - 1, 100, 12},
            {"h0", "h1", "m0", "m1", hello_.job_id(), hello_.token(), Version(), "step-100"}};
  }
  proto::AgentReport Next() {
    proto::AgentReport report;
    if (!random_.Once(3)) {
      report.mutable_from_rank()->set_stream(random_.Once(10) ? 1 : 0);
      report.mutable_from_rank()->set_report(RankReport());
    } else if (random_.Once(6)) {
      report = First();  // and once more, perhaps for another machine
      const std::string machines[] = {"m0", "m1", "m7", hello_.machine()};
      report.mutable_hello()->set_machine(random_.Of(absl::MakeConstSpan(machines)));
    } else {
      FillAtRandom(report, Likely(), random_);
    }
    if (beginning_ == Beginning::kWithoutRight && report.has_hello())
      Spoil(*report.mutable_hello());
    report.set_sequence(static_cast<int64_t>(random_.Below(kMostReports)));
    return report;
  }
  // Returns a report of the rank that was placed here, mostly: as it would begin, and then
  // anything.
  std::string RankReport() {
    if (random_.Once(20)) return "no report";
    proto::WorkerReport report;
    FillAtRandom(report, Likely(), random_);
    report.set_rank(random_.Once(10) ? static_cast<int32_t>(random_.Below(5)) - 2 : rank_.load());
    report.set_generation(generation_);
    if (random_.Once(++rank_reports_)) *report.mutable_register_() = Registration();
    return report.SerializeAsString();
  }

  grpc::ClientContext context_;
  std::unique_ptr<proto::AgentLink::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::AgentReport, proto::AgentOrder>> stream_;
  const proto::Hello hello_;
  const Beginning beginning_;
  Random random_;
  std::atomic<int64_t>& generation_;
  std::atomic<bool> was_welcome_ = false;
  std::atomic<bool> was_launched_ = false;
  std::atomic<bool> has_trained_ = false;
  std::atomic<int> rank_ = 0;
  size_t rank_reports_ = 0;
  absl::Status status_;
};

TEST_F(AgentFuzz, EndsNeitherWeftdNorIsLetInWithoutAToken) {
  int let_in = 0, launched = 0, trained = 0;
  Campaign("agents", 75, [&](Random& random, const std::string& name) {
    SCOPED_TRACE(name);
    KeepAJob();
    if (HasFatalFailure()) return;
    std::vector<std::unique_ptr<RandomAgent>> agents;
    std::vector<bool> have_right;
    const bool trains = random.Once(2);
    for (int i = 0; i < kStreamsAtOnce; ++i) {
      const bool is_of_pair = trains && i < kHosts;
      const int host = is_of_pair ? i : static_cast<int>(random.Below(kHosts));
      have_right.push_back(is_of_pair || (!trains && !random.Once(4)));
      const Beginning beginning = is_of_pair          ? Beginning::kTraining
                                  : have_right.back() ? Beginning::kWithRight
                                                      : Beginning::kWithoutRight;
      agents.push_back(std::make_unique<RandomAgent>(Dial(), HelloOf(host), beginning,
                                                     random.Next(), generation_));
    }
    std::vector<std::thread> threads;
    for (const auto& agent : agents) threads.emplace_back([&agent] { agent->Run(); });
    for (std::thread& each : threads) each.join();
    for (size_t i = 0; i < agents.size(); ++i) {
      EXPECT_TRUE(have_right[i] || !agents[i]->was_welcome()) << "let in without a token";
      let_in += agents[i]->was_welcome() ? 1 : 0;
      launched += agents[i]->was_launched() ? 1 : 0;
      trained += agents[i]->has_trained() ? 1 : 0;
    }
  });
  std::printf("%d were let in, %d launched, %d trained\n", let_in, launched, trained);
  EXPECT_GT(let_in, 50) << "what is behind the door was hardly tried";
}

}  // namespace
}  // namespace weft
