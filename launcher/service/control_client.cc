#include "launcher/service/control_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"
#include "process/rpc.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {
namespace {

using Stub = v1::Control::Stub;

const char kGone[] = "stopped watching";

// A run's own weftd has come up with the command that speaks with it, and ends with its run.
absl::Status ExplainedOfRun(const absl::Status& status, const std::string& target) {
  if (!absl::IsPermissionDenied(status)) return status;
  absl::string_view path = target;
  absl::ConsumePrefix(&path, "unix:");
  return absl::PermissionDeniedError(
      absl::StrCat(path, ": the run belongs to another user, who alone may look at it or stop it (",
                   status.message(), ")"));
}

absl::Status Explained(const absl::Status& status, const ServiceAddress& address) {
  const std::string& target = address.target;
  if (address.is_run) return ExplainedOfRun(status, target);
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(absl::StrCat(
        "weftd at ", target, " does not answer (", status.message(),
        "); is it running, and is this its address? (--coordinator, ", kServiceVariable, ")"));
  }
  if (absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(
        absl::StrCat("weftd at ", target, " does not answer in time; try again"));
  }
  if (absl::IsUnimplemented(status)) {
    return absl::UnimplementedError(absl::StrCat("weftd at ", target,
                                                 " has no such call yet; update weftd, or ask "
                                                 "the one that serves jobs (--coordinator)"));
  }
  return status;
}

}  // namespace

std::string FreshRequestId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  return id;
}

class ControlClient::Impl {
 public:
  Impl(ServiceAddress address, const Patience& patience)
      : address_(std::move(address)), patience_(patience) {}

  absl::Status Connect() {
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                     OpenChannel(address_.target, address_.bundle,
                                 address_.is_run ? Listens::kThisUser : Listens::kService));
    const std::lock_guard lock(mutex_);
    stub_ = v1::Control::NewStub(channel);
    return absl::OkStatus();
  }

  template <typename Request, typename Reply>
  using Call = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(Call<Request, Reply> call, const Request& request,
                            int64_t call_ms = 0) {
    // weftd refuses it with the code of one that is busy, which would be asked again.
    if (const size_t bytes = request.ByteSizeLong(); bytes > size_t{kMaxMessageBytes}) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the request has ", bytes, " bytes; weftd takes ", kMaxMessageBytes, " at most"));
    }
    absl::Status status;
    for (int attempt = 1;; ++attempt) {
      const std::shared_ptr<Stub> stub = CurrentStub();
      Reply reply;
      grpc::ClientContext context;
      SetDeadline(context, call_ms > 0 ? call_ms : patience_.call_ms);
      status = FromGrpc(((*stub).*call)(&context, request, &reply));
      if (status.ok()) return reply;
      // Busy, closing, or more calls than one caller may make.
      const bool may_pass = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
      if (!may_pass || attempt >= patience_.attempts) break;
      RETURN_IF_ERROR(WaitAndConnect(attempt));
    }
    return Explained(status, address_);
  }

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Change(Call<Request, Reply> call, Request request) {
    if (request.request_id().empty()) request.set_request_id(FreshRequestId());
    return Ask(call, request);
  }

  absl::Status Watch(const std::string& job_id, int64_t* revision,
                     const std::function<bool(const v1::WatchReply&)>& on_reply) {
    for (int failures = 0;;) {
      const int64_t before = *revision;
      bool enough = false;
      v1::WatchRequest request;
      request.set_job_id(job_id);
      request.set_after_revision(before);
      const absl::Status status = ReadAll<v1::WatchReply>(
          [&](Stub& stub, grpc::ClientContext* context) { return stub.Watch(context, request); },
          [&](const v1::WatchReply& reply) {
            for (const v1::Event& event : reply.events()) {
              *revision = std::max(*revision, event.revision());
            }
            *revision = std::max(*revision, reply.revision());
            enough = !on_reply(reply);
            return !enough;
          });
      if (enough) return absl::OkStatus();
      // A watcher that was cut for being slow, or whose weftd has gone, comes back.
      const bool comes_back = absl::IsResourceExhausted(status) ||
                              (absl::IsUnavailable(status) && patience_.awaits_restart);
      if (!comes_back) {
        return Explained(status, address_);
      }
      failures = *revision > before ? 1 : failures + 1;
      if (failures >= patience_.watch_attempts) return Explained(status, address_);
      RETURN_IF_ERROR(WaitAndConnect(failures));
    }
  }

  absl::Status Logs(const v1::LogsRequest& request,
                    const std::function<void(const v1::LogsReply&)>& on_reply) {
    const absl::Status status = ReadAll<v1::LogsReply>(
        [&](Stub& stub, grpc::ClientContext* context) { return stub.Logs(context, request); },
        [&](const v1::LogsReply& reply) {
          on_reply(reply);
          return true;
        });
    return Explained(status, address_);
  }

  void Leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    if (stream_ != nullptr) stream_->TryCancel();
    changed_.notify_all();
  }

 private:
  // Reads a stream until it ends or `on_reply` returns false. It has no deadline: it lasts as long
  // as what it tells of, and Leave ends it.
  template <typename Reply, typename Open, typename OnReply>
  absl::Status ReadAll(const Open& open, const OnReply& on_reply) {
    grpc::ClientContext context;
    std::shared_ptr<Stub> stub;
    {
      const std::lock_guard lock(mutex_);
      if (left_) return absl::CancelledError(kGone);
      stream_ = &context;
      stub = stub_;
    }
    const auto reader = open(*stub, &context);
    Reply reply;
    while (reader->Read(&reply)) {
      if (on_reply(reply)) continue;
      context.TryCancel();
      break;
    }
    while (reader->Read(&reply)) {  // what was under way
    }
    const absl::Status status = FromGrpc(reader->Finish());
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    return left_ ? absl::CancelledError(kGone) : status;
  }

  std::shared_ptr<Stub> CurrentStub() {
    const std::lock_guard lock(mutex_);
    return stub_;
  }

  // A channel over a connection that has broken is of no more use. One that cannot be made now may
  // be at the next attempt.
  absl::Status WaitAndConnect(int failures) {
    int64_t wait_ms = patience_.first_wait_ms;
    for (int i = 1; i < failures && wait_ms < patience_.last_wait_ms; ++i) wait_ms *= 2;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(std::min(wait_ms, patience_.last_wait_ms)),
                        [&] { return left_; });
      if (left_) return absl::CancelledError(kGone);
    }
    const absl::Status connected = Connect();
    return absl::IsUnavailable(connected) ? absl::OkStatus() : connected;
  }

  const ServiceAddress address_;
  const Patience patience_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::shared_ptr<Stub> stub_;
  grpc::ClientContext* stream_ = nullptr;  // that is being read
  bool left_ = false;
};

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Open(const ServiceAddress& address,
                                                                   const Patience& patience) {
  auto impl = std::make_unique<Impl>(address, patience);
  const absl::Status connected = impl->Connect();
  if (!connected.ok()) return Explained(connected, address);
  return std::unique_ptr<ControlClient>(new ControlClient(std::move(impl)));
}

ControlClient::ControlClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlClient::~ControlClient() = default;

absl::StatusOr<v1::VersionReply> ControlClient::Version(int64_t call_ms) {
  return impl_->Ask(&Stub::Version, v1::VersionRequest(), call_ms);
}
absl::StatusOr<v1::ListReply> ControlClient::List(const v1::ListRequest& request) {
  return impl_->Ask(&Stub::List, request);
}
absl::StatusOr<v1::Job> ControlClient::Get(const std::string& job_id, int64_t call_ms) {
  v1::GetRequest request;
  request.set_job_id(job_id);
  return impl_->Ask(&Stub::Get, request, call_ms);
}
absl::StatusOr<v1::HostsReply> ControlClient::Hosts(int64_t call_ms) {
  return impl_->Ask(&Stub::Hosts, v1::HostsRequest(), call_ms);
}
absl::StatusOr<v1::SubmitReply> ControlClient::Submit(v1::SubmitRequest request) {
  return impl_->Change(&Stub::Submit, std::move(request));
}
absl::StatusOr<v1::Job> ControlClient::Stop(v1::StopRequest request) {
  return impl_->Change(&Stub::Stop, std::move(request));
}
absl::StatusOr<v1::Job> ControlClient::Checkpoint(v1::CheckpointRequest request) {
  return impl_->Change(&Stub::Checkpoint, std::move(request));
}
absl::StatusOr<v1::Job> ControlClient::Pause(v1::PauseRequest request) {
  return impl_->Change(&Stub::Pause, std::move(request));
}
absl::StatusOr<v1::Job> ControlClient::Resume(v1::ResumeRequest request) {
  return impl_->Change(&Stub::Resume, std::move(request));
}
absl::StatusOr<v1::Job> ControlClient::Resize(v1::ResizeRequest request) {
  return impl_->Change(&Stub::Resize, std::move(request));
}
absl::StatusOr<v1::Host> ControlClient::DrainHost(v1::DrainHostRequest request) {
  return impl_->Change(&Stub::DrainHost, std::move(request));
}
absl::StatusOr<v1::Host> ControlClient::UndrainHost(v1::UndrainHostRequest request) {
  return impl_->Change(&Stub::UndrainHost, std::move(request));
}
absl::StatusOr<v1::SetLogLevelReply> ControlClient::SetLogLevel(v1::SetLogLevelRequest request) {
  return impl_->Change(&Stub::SetLogLevel, std::move(request));
}

absl::Status ControlClient::Watch(const std::string& job_id, int64_t* revision,
                                  const std::function<bool(const v1::WatchReply&)>& on_reply) {
  return impl_->Watch(job_id, revision, on_reply);
}
absl::Status ControlClient::Logs(const v1::LogsRequest& request,
                                 const std::function<void(const v1::LogsReply&)>& on_reply) {
  return impl_->Logs(request, on_reply);
}
void ControlClient::Leave() {
  impl_->Leave();
}

}  // namespace weft
