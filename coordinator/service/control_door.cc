#include "coordinator/service/control_door.h"

#include <unistd.h>

#include <future>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "coordinator/planning.h"
#include "coordinator/service/control_calls.h"
#include "coordinator/service/logs_stream.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/log.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "proto/job_text.h"

namespace weft {
namespace {

constexpr size_t kMaxReplies = 2000;  // that wait for one watcher

class JobsStream final : public grpc::ServerWriteReactor<v1::WatchReply> {
 public:
  JobsStream(FleetDriver& fleet, int64_t id, CallLimits::Held held, const v1::WatchRequest& request)
      : fleet_(fleet),
        id_(id),
        held_(std::move(held)),
        outbox_(std::make_shared<Box>(this, kMaxReplies)) {
    fleet_.Watch(id_, request,
                 {.send = [box = outbox_](const v1::WatchReply& reply) { box->Send(reply); },
                  .close = [box = outbox_](const absl::Status& why) { box->Close(why); }});
  }

  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnCancel() override { outbox_->Close(absl::CancelledError("the watcher hung up")); }
  void OnDone() override {
    fleet_.Unwatch(id_);
    outbox_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  using Box = Outbox<JobsStream, v1::WatchReply>;
  FleetDriver& fleet_;
  const int64_t id_;
  const CallLimits::Held held_;
  const std::shared_ptr<Box> outbox_;
};

}  // namespace

absl::StatusOr<Caller> JobsDoor::Admit(Context* context, Role least, const char* what) const {
  absl::StatusOr<Caller> caller = find_(*context);
  // Calls that are denied count, too: each is a line of the log.
  if (caller.ok()) RETURN_IF_ERROR(limits_.TakeCall(CallerText(*caller), now_ms_()));
  if (caller.ok() && caller->role < least) {
    caller = absl::PermissionDeniedError(absl::StrCat(CallerText(*caller), " may not call ", what));
  }
  if (!caller.ok()) LogWarning(absl::StrCat("denied: ", what, ": ", caller.status().message()));
  return caller;
}

template <typename Message>
JobsDoor::Unary* JobsDoor::Take(
    Context* context, Role least, const char* what, Message* reply,
    const std::function<void(const Caller&, const Reply<Message>&)>& take) const {
  Unary* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = Admit(context, least, what);
  absl::Status tried = caller.status();
  if (tried.ok()) tried = Caught(what, [&] { take(*caller, Into(reactor, reply)); });
  if (!tried.ok()) reactor->Finish(ToGrpc(tried));
  return reactor;
}

// Open to every caller that is let in.
JobsDoor::Unary* JobsDoor::Version(Context* context, const v1::VersionRequest*,
                                   v1::VersionReply* reply) {
  reply->set_api_version(kApiVersion);
  reply->set_version(version_);
  reply->set_pid(getpid());
  Unary* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

JobsDoor::Unary* JobsDoor::Plan(Context* context, const v1::PlanRequest* request,
                                v1::PlanReply* reply) {
  return Take<v1::PlanReply>(context, Role::kViewer, "Plan", reply,
                             [&](const Caller& caller, const Reply<v1::PlanReply>& answer) {
                               const absl::StatusOr<CallLimits::Held> held =
                                   limits_.TakePlan(CallerText(caller));
                               if (held.ok()) return answer(PlanFor(*request));
                               answer(held.status());
                             });
}

JobsDoor::Unary* JobsDoor::Submit(Context* context, const v1::SubmitRequest* request,
                                  v1::SubmitReply* reply) {
  return Take<v1::SubmitReply>(context, Role::kSubmitter, "Submit", reply,
                               [&](const Caller& caller, const Reply<v1::SubmitReply>& answer) {
                                 fleet_.Submit(caller, *request, answer);
                               });
}

JobsDoor::Unary* JobsDoor::List(Context* context, const v1::ListRequest* request,
                                v1::ListReply* reply) {
  return Take<v1::ListReply>(
      context, Role::kViewer, "List", reply,
      [&](const Caller&, const Reply<v1::ListReply>& answer) { fleet_.List(*request, answer); });
}

JobsDoor::Unary* JobsDoor::Get(Context* context, const v1::GetRequest* request, v1::Job* reply) {
  return Take<v1::Job>(
      context, Role::kViewer, "Get", reply,
      [&](const Caller&, const Reply<v1::Job>& answer) { fleet_.Get(*request, answer); });
}

JobsDoor::Unary* JobsDoor::Stop(Context* context, const v1::StopRequest* request, v1::Job* reply) {
  return Take<v1::Job>(context, Role::kSubmitter, "Stop", reply,
                       [&](const Caller& caller, const Reply<v1::Job>& answer) {
                         fleet_.Stop(caller, *request, answer);
                       });
}

JobsDoor::Unary* JobsDoor::Checkpoint(Context* context, const v1::CheckpointRequest* request,
                                      v1::Job* reply) {
  return Take<v1::Job>(context, Role::kSubmitter, "Checkpoint", reply,
                       [&](const Caller& caller, const Reply<v1::Job>& answer) {
                         fleet_.Checkpoint(caller, *request, answer);
                       });
}

JobsDoor::Unary* JobsDoor::Pause(Context* context, const v1::PauseRequest* request,
                                 v1::Job* reply) {
  return Take<v1::Job>(context, Role::kSubmitter, "Pause", reply,
                       [&](const Caller& caller, const Reply<v1::Job>& answer) {
                         fleet_.Pause(caller, *request, answer);
                       });
}

JobsDoor::Unary* JobsDoor::Resume(Context* context, const v1::ResumeRequest* request,
                                  v1::Job* reply) {
  return Take<v1::Job>(context, Role::kSubmitter, "Resume", reply,
                       [&](const Caller& caller, const Reply<v1::Job>& answer) {
                         fleet_.Resume(caller, *request, answer);
                       });
}

// A job that no plan fits would save, give its hosts back and fail.
absl::Status JobsDoor::CheckResize(const Caller& caller, const v1::ResizeRequest& request) const {
  std::promise<absl::StatusOr<std::optional<v1::Submission>>> found;
  fleet_.FindResized(caller, request, [&](const auto& answer) { found.set_value(answer); });
  ASSIGN_OR_RETURN(const std::optional<v1::Submission> submission, found.get_future().get());
  if (!submission) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JobSpec spec, ParseJobText(submission->job()));
  ASSIGN_OR_RETURN(const CallLimits::Held held, limits_.TakePlan(CallerText(caller)));
  const int least_nodes = request.least_nodes() == 0 ? request.nodes() : request.least_nodes();
  const absl::Status fits = CheckNodes(spec, least_nodes, request.nodes());
  if (fits.ok()) return fits;
  return absl::Status(fits.code(), absl::StrCat(request.job_id(), ": ", fits.message()));
}

JobsDoor::Unary* JobsDoor::Resize(Context* context, const v1::ResizeRequest* request,
                                  v1::Job* reply) {
  return Take<v1::Job>(context, Role::kSubmitter, "Resize", reply,
                       [&](const Caller& caller, const Reply<v1::Job>& answer) {
                         const absl::Status fits = CheckResize(caller, *request);
                         if (!fits.ok()) return answer(fits);
                         fleet_.Resize(caller, *request, answer);
                       });
}

JobsDoor::Unary* JobsDoor::Hosts(Context* context, const v1::HostsRequest*, v1::HostsReply* reply) {
  return Take<v1::HostsReply>(
      context, Role::kViewer, "Hosts", reply,
      [&](const Caller&, const Reply<v1::HostsReply>& answer) { fleet_.Hosts(answer); });
}

JobsDoor::Unary* JobsDoor::DrainHost(Context* context, const v1::DrainHostRequest* request,
                                     v1::Host* reply) {
  return Take<v1::Host>(context, Role::kOperator, "DrainHost", reply,
                        [&](const Caller& caller, const Reply<v1::Host>& answer) {
                          fleet_.DrainHost(caller, *request, answer);
                        });
}

JobsDoor::Unary* JobsDoor::UndrainHost(Context* context, const v1::UndrainHostRequest* request,
                                       v1::Host* reply) {
  return Take<v1::Host>(context, Role::kOperator, "UndrainHost", reply,
                        [&](const Caller& caller, const Reply<v1::Host>& answer) {
                          fleet_.UndrainHost(caller, *request, answer);
                        });
}

grpc::ServerWriteReactor<v1::WatchReply>* JobsDoor::Watch(Context* context,
                                                          const v1::WatchRequest* request) {
  const absl::StatusOr<Caller> caller = Admit(context, Role::kViewer, "Watch");
  if (!caller.ok()) return new Refusal<v1::WatchReply>(caller.status());
  absl::StatusOr<CallLimits::Held> held = limits_.TakeStream(CallerText(*caller));
  if (!held.ok()) return new Refusal<v1::WatchReply>(held.status());
  return new JobsStream(fleet_, ++ids_, *std::move(held), *request);
}

grpc::ServerWriteReactor<v1::LogsReply>* JobsDoor::Logs(Context* context,
                                                        const v1::LogsRequest* request) {
  const absl::StatusOr<Caller> caller = Admit(context, Role::kViewer, "Logs");
  if (!caller.ok()) return new Refusal<v1::LogsReply>(caller.status());
  absl::StatusOr<CallLimits::Held> held = limits_.TakeLogs(CallerText(*caller));
  if (!held.ok()) return new Refusal<v1::LogsReply>(held.status());
  const auto ask = [this](const v1::GetRequest& job, const Reply<v1::Job>& answer) {
    fleet_.Get(job, answer);
  };
  return new LogsStream(ask, *std::move(held), *request);
}

JobsDoor::Unary* JobsDoor::SetLogLevel(Context* context, const v1::SetLogLevelRequest* request,
                                       v1::SetLogLevelReply* reply) {
  const auto set = [&](const Caller& caller, const Reply<v1::SetLogLevelReply>& answer) {
    answer(SetLogLevelTo(request->level(), CallerText(caller)));
  };
  return Take<v1::SetLogLevelReply>(context, Role::kOperator, "SetLogLevel", reply, set);
}

}  // namespace weft
