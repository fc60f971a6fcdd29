#include "tests/service/service_bed.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/job_file/job_yaml.h"
#include "process/rpc.h"
#include "proto/job_text.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr int64_t kCallMs = 20000;
constexpr char kCookie[] = "WEFT_SERVICE_BED";

std::string TinyJob(const std::string& name, int slots, int64_t steps, const std::string& folder) {
  std::ostringstream text;
  text << "job: {name: " << name << ", output_dir: " << folder << "}\n"
       << kTinyModel << "training: {seq_len: " << kTinySeqLen
       << ", global_batch_size: 8, steps: " << steps << ", seed: 42}\n"
       << "optimizer: {name: adamw, lr: 1.0e-3}\n"
       << "lr_scheduler: {type: constant}\n"
       << "parallelism: {dp: " << slots << "}\n"
       << "checkpoint: {interval: 1000}\n"
       << "cluster: {profile: cpu, slots: " << slots << "}\n";
  return text.str();
}

}  // namespace

void ServiceBed::SetUp() {
  char pattern[] = "/tmp/weft-service-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  folder_ = pattern;
  PrepareFolder();
  StartWeftd();
}

void ServiceBed::TearDown() {
  control_.reset();
  if (host_ != nullptr) host_->Signal(SIGTERM);
  if (host_ != nullptr && !host_->Wait(kLeavesWithinS))
    ADD_FAILURE() << "the standing agent does not end";
  if (weftd_ != nullptr) weftd_->Signal(SIGTERM);
  if (weftd_ != nullptr && !weftd_->Wait(kLeavesWithinS)) ADD_FAILURE() << "weftd does not end";
  const std::string words = HasFailure() ? Words() : "";
  EXPECT_TRUE(Eventually(kLeavesWithinS, [&] { return ProcessesWith(kCookie, folder_).empty(); }));
  for (const Found& left : ProcessesWith(kCookie, folder_)) {
    ADD_FAILURE() << "left behind: " << left.command;
    KillFound(left, SIGKILL);
  }
  if (HasFailure()) {
    std::fprintf(stderr, "kept for a look: %s\n%s\n", folder_.c_str(), words.c_str());
    return;
  }
  std::filesystem::remove_all(folder_);
}

std::unique_ptr<Child> ServiceBed::Start(const std::string& name,
                                         std::vector<std::string> arguments) {
  const std::string output = folder_ + "/" + name + "-" + std::to_string(++started_);
  std::filesystem::create_directories(folder_ + "/tmp");
  return std::make_unique<Child>(
      std::move(arguments),
      std::map<std::string, std::string>{
          {kCookie, folder_}, {"TMPDIR", folder_ + "/tmp"}, {kPauseVariable, Pace()}},
      output + ".out", output + ".err");
}

void ServiceBed::StartWeftd() {
  weftd_ = Start("weftd", WeftdWords());
  Connect();
}

void ServiceBed::Connect() {
  const bool answers = Eventually(120, [&] {
    const auto channel = OpenChannel("unix:" + socket(), {}, Listens::kService);
    if (!channel.ok()) return false;
    control_ = v1::Control::NewStub(*channel);
    grpc::ClientContext context;
    SetDeadline(context, 1000);
    v1::VersionReply reply;
    return control_->Version(&context, {}, &reply).ok();
  });
  ASSERT_TRUE(answers) << Words();
}

void ServiceBed::StartHost(int slots) {
  // Its own name: standing agents of one name on one machine, as of two tests, get in each other's
  // way.
  std::vector<std::string> words = HostWords(slots);
  words.push_back("--name=" + std::filesystem::path(folder_).filename().string());
  host_ = Start("host", std::move(words));
  const bool is_there = Eventually(120, [&] { return Host().present(); });
  ASSERT_TRUE(is_there) << Words();
}

std::string ServiceBed::WeftdVersion() {
  grpc::ClientContext context;
  SetDeadline(context, 5000);
  v1::VersionReply reply;
  EXPECT_TRUE(control_->Version(&context, {}, &reply).ok());
  return reply.version();
}

void ServiceBed::EndWeftd(int signal) {
  weftd_->Signal(signal);
  ASSERT_TRUE(weftd_->Wait(kPatienceS).has_value());
}

std::string ServiceBed::Run(const std::vector<std::string>& words) {
  const std::unique_ptr<Child> child = Start("run", words);
  EXPECT_TRUE(child->Wait(kPatienceS).has_value());
  return child->Stdout() + child->Stderr();
}

std::vector<Found> ServiceBed::Processes(const std::string& program) const {
  std::vector<Found> found = ProcessesWith(kCookie, folder_);
  found.erase(
      std::remove_if(found.begin(), found.end(),
                     [&](const Found& each) { return each.command.rfind(program, 0) != 0; }),
      found.end());
  return found;
}

void ServiceBed::KillWeftd() {
  EndWeftd(SIGKILL);
  StartWeftd();
}

void ServiceBed::EndHost(int signal) {
  host_->Signal(signal);
  ASSERT_TRUE(host_->Wait(kPatienceS).has_value());
}

void ServiceBed::RestartHost(int signal, int slots) {
  EndHost(signal);
  StartHost(slots);
}

std::vector<std::string> ServiceBed::WeftdWords() const {
  return {weftd_path_, "--socket=" + socket(), "--state=" + folder_ + "/state"};
}

std::vector<std::string> ServiceBed::HostWords(int slots) const {
  return {BinaryPath("/bin/weft"), "agent", "--standing", "--coordinator=unix:" + socket(),
          "--slots=" + std::to_string(slots)};
}

v1::SubmitRequest ServiceBed::Job(const std::string& name, int slots, int64_t steps, int priority) {
  const std::string path = folder_ + "/" + name + ".yaml";
  const auto file = ReadJobText(TinyJob(name, slots, steps, folder_), path, {});
  if (!file.ok()) throw std::runtime_error(std::string(file.status().message()));
  v1::SubmitRequest request;
  request.set_request_id(NewId());
  request.set_name(name);
  request.set_priority(priority);
  request.set_file(path);
  v1::Submission& submission = *request.mutable_submission();
  submission.set_job(JobText(file->job));
  submission.set_run_folder(folder_ + "/" + name);
  submission.mutable_run()->set_id("00000000000000" + std::to_string(10 + ++started_));
  return request;
}

std::string ServiceBed::JobFileText(const std::string& name, int slots, int64_t steps) const {
  return TinyJob(name, slots, steps, folder_);
}

std::string ServiceBed::Submit(const v1::SubmitRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::SubmitReply reply;
  const absl::Status status = FromGrpc(control_->Submit(&context, request, &reply));
  EXPECT_EQ(status, absl::OkStatus());
  return reply.job_id();
}

v1::Job ServiceBed::Get(const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::GetRequest request;
  request.set_job_id(job);
  v1::Job reply;
  const absl::Status status = FromGrpc(control_->Get(&context, request, &reply));
  EXPECT_EQ(status, absl::OkStatus());
  return reply;
}

absl::Status ServiceBed::Stop(const std::string& job, v1::StopRequest::Level level) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::StopRequest request;
  request.set_request_id(NewId());
  request.set_job_id(job);
  request.set_level(level);
  v1::Job reply;
  return FromGrpc(control_->Stop(&context, request, &reply));
}

absl::Status ServiceBed::Checkpoint(const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::CheckpointRequest request;
  request.set_request_id(NewId());
  request.set_job_id(job);
  v1::Job reply;
  return FromGrpc(control_->Checkpoint(&context, request, &reply));
}

absl::Status ServiceBed::Pause(const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::PauseRequest request;
  request.set_request_id(NewId());
  request.set_job_id(job);
  v1::Job reply;
  return FromGrpc(control_->Pause(&context, request, &reply));
}

absl::Status ServiceBed::Resume(const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::ResumeRequest request;
  request.set_request_id(NewId());
  request.set_job_id(job);
  v1::Job reply;
  return FromGrpc(control_->Resume(&context, request, &reply));
}

v1::Host ServiceBed::Host() {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::HostsReply reply;
  const absl::Status status = FromGrpc(control_->Hosts(&context, {}, &reply));
  EXPECT_EQ(status, absl::OkStatus());
  return reply.hosts_size() == 1 ? reply.hosts(0) : v1::Host();
}

v1::Job ServiceBed::WaitFor(const std::string& job,
                            const std::function<bool(const v1::Job&)>& is_so, double timeout_s) {
  v1::Job seen;
  Eventually(timeout_s, [&] {
    seen = Get(job);
    return is_so(seen) || seen.ended_unix_ms() > 0;
  });
  EXPECT_TRUE(is_so(seen)) << seen.DebugString();
  return seen;
}

v1::Job ServiceBed::WaitForPhase(const std::string& job, const std::string& phase,
                                 double timeout_s) {
  SCOPED_TRACE("waits for " + job + " to be " + phase);
  return WaitFor(
      job, [&](const v1::Job& seen) { return seen.phase() == phase; }, timeout_s);
}

v1::Job ServiceBed::WaitForStep(const std::string& job, int64_t step, double timeout_s) {
  SCOPED_TRACE("waits for " + job + " to train");
  return WaitFor(
      job, [&](const v1::Job& seen) { return seen.step() >= step; }, timeout_s);
}

// The learning rate is constant, so a longer job has the losses of a shorter one.
std::map<int64_t, std::string> ServiceBed::UndisturbedCurve(int slots, int64_t steps) {
  static auto* const trained = new std::map<int, std::map<int64_t, std::string>>;
  std::map<int64_t, std::string>& curve = (*trained)[slots];
  if (static_cast<int64_t>(curve.size()) < steps) {
    WaitForPhase(Submit(Job("undisturbed", slots, steps)), "COMPLETED", 600);
    curve = Curve("undisturbed");
    EXPECT_EQ(curve.size(), static_cast<size_t>(steps));
  }
  return {curve.begin(), curve.upper_bound(steps)};
}

std::vector<v1::Event> ServiceBed::Events(const std::string& job, int64_t after_revision) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  v1::WatchRequest request;
  request.set_job_id(job);
  request.set_after_revision(after_revision);
  const auto reader = control_->Watch(&context, request);
  std::vector<v1::Event> events;
  v1::WatchReply reply;
  while (reader->Read(&reply)) {
    events.insert(events.end(), reply.events().begin(), reply.events().end());
  }
  EXPECT_EQ(FromGrpc(reader->Finish()), absl::OkStatus());
  return events;
}

std::map<std::string, std::string> ServiceBed::Logs(const v1::LogsRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  const auto reader = control_->Logs(&context, request);
  std::map<std::string, std::string> logs;
  v1::LogsReply reply;
  while (reader->Read(&reply)) logs[reply.file()] += reply.text();
  EXPECT_EQ(FromGrpc(reader->Finish()), absl::OkStatus());
  return logs;
}

std::string ServiceBed::Words() const {
  std::string words;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != ".err") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    words += "---- " + entry.path().filename().string() + "\n" + text.str();
  }
  return words;
}

}  // namespace weft
