#include "tests/launcher/service/fake_control.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "process/rpc.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {

class FakeControl::Service final : public v1::Control::Service {
 public:
  explicit Service(const std::string& socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Service() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitReply* reply) override {
    const std::lock_guard lock(mutex_);
    const grpc::Status status = Take("Submit", request->request_id());
    submitted_ = *request;
    reply->set_job_id("job-17");
    reply->set_revision(state_.revision);
    return status;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest* request,
                    v1::ListReply* reply) override {
    const std::lock_guard lock(mutex_);
    const grpc::Status status = Take("List", request->ShortDebugString());
    const auto size = static_cast<size_t>(request->page_size() > 0 ? request->page_size() : 100);
    const size_t from = request->page_token().empty() ? 0 : std::stoul(request->page_token());
    for (size_t i = from; i < std::min(state_.jobs.size(), from + size); ++i) {
      *reply->add_jobs() = state_.jobs[i];
    }
    if (from + size < state_.jobs.size()) reply->set_next_page_token(absl::StrCat(from + size));
    reply->set_revision(state_.revision);
    return status;
  }
  grpc::Status Get(grpc::ServerContext*, const v1::GetRequest* request, v1::Job* reply) override {
    return Job("Get", *request, reply);
  }
  grpc::Status Stop(grpc::ServerContext*, const v1::StopRequest* request, v1::Job* reply) override {
    return Job("Stop", *request, reply);
  }
  grpc::Status Checkpoint(grpc::ServerContext*, const v1::CheckpointRequest* request,
                          v1::Job* reply) override {
    return Job("Checkpoint", *request, reply);
  }
  grpc::Status Pause(grpc::ServerContext*, const v1::PauseRequest* request,
                     v1::Job* reply) override {
    return Job("Pause", *request, reply);
  }
  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest* request,
                      v1::Job* reply) override {
    return Job("Resume", *request, reply);
  }
  grpc::Status Resize(grpc::ServerContext*, const v1::ResizeRequest* request,
                      v1::Job* reply) override {
    return Job("Resize", *request, reply);
  }
  grpc::Status Hosts(grpc::ServerContext*, const v1::HostsRequest*,
                     v1::HostsReply* reply) override {
    const std::lock_guard lock(mutex_);
    for (const v1::Host& host : state_.hosts) *reply->add_hosts() = host;
    return Take("Hosts", "");
  }
  grpc::Status DrainHost(grpc::ServerContext*, const v1::DrainHostRequest* request,
                         v1::Host* reply) override {
    return HostNamed("DrainHost", *request, reply);
  }
  grpc::Status UndrainHost(grpc::ServerContext*, const v1::UndrainHostRequest* request,
                           v1::Host* reply) override {
    return HostNamed("UndrainHost", *request, reply);
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchReply>* writer) override {
    FakeControlState state;
    {
      const std::lock_guard lock(mutex_);
      const grpc::Status status = Take("Watch", request->ShortDebugString());
      if (!status.ok()) return status;
      state = state_;
    }
    if (request->after_revision() + 1 < state.oldest_revision) {
      return {grpc::StatusCode::OUT_OF_RANGE,
              absl::StrCat("revision ", request->after_revision(), " is no longer kept; use ",
                           state.oldest_revision - 1, " or later")};
    }
    int sent = 0;
    for (const v1::Event& event : state.events) {
      const bool is_asked = request->job_id().empty() || request->job_id() == event.job_id();
      if (!is_asked || event.revision() <= request->after_revision()) continue;
      if (state.events_a_stream > 0 && sent++ >= state.events_a_stream) {
        return {grpc::StatusCode::UNAVAILABLE, "broken"};
      }
      v1::WatchReply reply;
      *reply.add_events() = event;
      reply.set_revision(event.revision());
      writer->Write(reply);
    }
    v1::WatchReply bookmark;
    bookmark.set_revision(state.revision);
    writer->Write(bookmark);
    for (int waited = 0; state.lasts && !context->IsCancelled() && waited < 6000; ++waited) {
      usleep(10000);
    }
    return grpc::Status::OK;
  }

  grpc::Status Logs(grpc::ServerContext*, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogsReply>* writer) override {
    const std::lock_guard lock(mutex_);
    const grpc::Status status = Take("Logs", request->ShortDebugString());
    if (!status.ok()) return status;
    for (const v1::LogsReply& piece : state_.pieces) writer->Write(piece);
    return grpc::Status::OK;
  }

  mutable std::mutex mutex_;  // guards all below
  FakeControlState state_;
  std::vector<std::string> asked_;
  v1::SubmitRequest submitted_;

 private:
  // REQUIRES: mutex_ held.
  grpc::Status Take(const std::string& call, const std::string& request) {
    asked_.push_back(absl::StrCat(call, " {", request, "}"));
    if (state_.refusals <= 0) return grpc::Status::OK;
    --state_.refusals;
    return ToGrpc(state_.refusal);
  }

  template <typename Request>
  grpc::Status Job(const std::string& call, const Request& request, v1::Job* reply) {
    const std::lock_guard lock(mutex_);
    const grpc::Status status = Take(call, request.ShortDebugString());
    if (!status.ok()) return status;
    for (const v1::Job& job : state_.jobs) {
      if (job.job_id() != request.job_id() && !request.job_id().empty()) continue;
      *reply = job;
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, absl::StrCat("job ", request.job_id(), " is not known")};
  }

  template <typename Request>
  grpc::Status HostNamed(const std::string& call, const Request& request, v1::Host* reply) {
    const std::lock_guard lock(mutex_);
    const grpc::Status status = Take(call, request.ShortDebugString());
    if (!status.ok()) return status;
    for (const v1::Host& host : state_.hosts) {
      if (host.host() != request.host()) continue;
      *reply = host;
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, absl::StrCat("host ", request.host(), " is not known")};
  }

  std::unique_ptr<grpc::Server> server_;
};

FakeControl::FakeControl(const std::string& socket) : service_(std::make_unique<Service>(socket)) {}
FakeControl::~FakeControl() = default;

void FakeControl::Set(const FakeControlState& state) {
  const std::lock_guard lock(service_->mutex_);
  service_->state_ = state;
}
std::vector<std::string> FakeControl::asked() const {
  const std::lock_guard lock(service_->mutex_);
  return service_->asked_;
}
v1::SubmitRequest FakeControl::submitted() const {
  const std::lock_guard lock(service_->mutex_);
  return service_->submitted_;
}
void FakeControl::Forget() {
  const std::lock_guard lock(service_->mutex_);
  service_->asked_.clear();
}

}  // namespace weft
