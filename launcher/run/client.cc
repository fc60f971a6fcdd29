#include "launcher/run/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/rpc.h"
#include "proto/control.grpc.pb.h"

namespace weft {
namespace {

// A watcher that was cut for being slow comes back this often at most.
constexpr int kMaxResumes = 1000;

}  // namespace

struct Client::Stubs {
  std::unique_ptr<proto::Control::Stub> control;
  std::mutex mutex;                      // guards watch and stopped
  grpc::ClientContext* watch = nullptr;  // of the stream that is being read
  bool stopped = false;
};

Client::Client(std::unique_ptr<Stubs> stubs) : stubs_(std::move(stubs)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const std::string& socket) {
  ASSIGN_OR_RETURN(const std::string target, UnixTarget(socket));
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel(target);
  if (absl::IsPermissionDenied(channel.status())) {
    return absl::PermissionDeniedError(absl::StrCat(
        socket, ": the run belongs to another user, who alone may look at it or stop it (",
        channel.status().message(), ")"));
  }
  RETURN_IF_ERROR(channel.status());
  auto stubs = std::make_unique<Stubs>();
  stubs->control = proto::Control::NewStub(*channel);
  return std::unique_ptr<Client>(new Client(std::move(stubs)));
}

absl::StatusOr<proto::VersionReply> Client::GetVersion(int64_t timeout_ms) {
  grpc::ClientContext context;
  SetDeadline(context, timeout_ms);
  proto::VersionReply reply;
  RETURN_IF_ERROR(FromGrpc(stubs_->control->Version(&context, {}, &reply)));
  return reply;
}

absl::StatusOr<std::string> Client::Submit(const proto::SubmitJobRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  proto::SubmitJobReply reply;
  RETURN_IF_ERROR(FromGrpc(stubs_->control->SubmitJob(&context, request, &reply)));
  return reply.job_id();
}

absl::StatusOr<proto::JobStatus> Client::GetJob(const std::string& job_id, int64_t timeout_ms) {
  grpc::ClientContext context;
  SetDeadline(context, timeout_ms);
  proto::JobRequest request;
  request.set_job_id(job_id);
  proto::JobStatus reply;
  RETURN_IF_ERROR(FromGrpc(stubs_->control->GetJob(&context, request, &reply)));
  return reply;
}

absl::Status Client::Stop(const std::string& job_id, bool now) {
  grpc::ClientContext context;
  SetDeadline(context, kCallMs);
  proto::StopJobRequest request;
  request.set_job_id(job_id);
  request.set_now(now);
  google::protobuf::Empty reply;
  return FromGrpc(stubs_->control->StopJob(&context, request, &reply));
}

absl::Status Client::Watch(const std::string& job_id, int64_t* revision,
                           const std::function<void(const proto::JobEvent&)>& on_event) {
  absl::Status status;
  for (int attempt = 0; attempt < kMaxResumes; ++attempt) {
    grpc::ClientContext context;  // no deadline: it lasts as long as the job; StopWatching ends it
    {
      const std::lock_guard<std::mutex> lock(stubs_->mutex);
      if (stubs_->stopped) return absl::CancelledError("stopped watching");
      stubs_->watch = &context;
    }
    proto::WatchRequest request;
    request.set_job_id(job_id);
    request.set_after_revision(*revision);
    const auto reader = stubs_->control->Watch(&context, request);
    proto::JobEvent event;
    while (reader->Read(&event)) {
      *revision = std::max(*revision, event.revision());
      on_event(event);
    }
    status = FromGrpc(reader->Finish());
    const std::lock_guard<std::mutex> lock(stubs_->mutex);
    stubs_->watch = nullptr;
    if (stubs_->stopped) return absl::CancelledError("stopped watching");
    if (!absl::IsResourceExhausted(status)) return status;
  }
  return status;
}

void Client::StopWatching() {
  const std::lock_guard<std::mutex> lock(stubs_->mutex);
  stubs_->stopped = true;
  if (stubs_->watch != nullptr) stubs_->watch->TryCancel();
}

}  // namespace weft
