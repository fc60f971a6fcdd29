#include "coordinator/service/control_door.h"

#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "plan/keys/job_rules.h"
#include "plan/search/search.h"
#include "process/log.h"
#include "process/outbox.h"
#include "process/rpc.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

constexpr char kApiVersion[] = "v1.0";
constexpr size_t kMaxReplies = 2000;  // that wait for one watcher

class JobsStream final : public grpc::ServerWriteReactor<v1::WatchReply> {
 public:
  JobsStream(FleetDriver& fleet, int64_t id, const v1::WatchRequest& request)
      : fleet_(fleet), id_(id), outbox_(std::make_shared<Box>(this, kMaxReplies)) {
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
  const std::shared_ptr<Box> outbox_;
};

// Finishes the call with the answer, whenever it comes.
template <typename Message>
Reply<Message> Into(grpc::ServerUnaryReactor* reactor, Message* reply) {
  return [reactor, reply](const absl::StatusOr<Message>& answer) {
    if (answer.ok()) *reply = *answer;
    reactor->Finish(ToGrpc(answer.status()));
  };
}

absl::StatusOr<v1::PlanReply> PlanFor(const v1::PlanRequest& request) {
  absl::StatusOr<JobSpec> job = ParseJobText(request.job());
  if (!job.ok()) return job.status();
  for (const SpecIssue& issue : Validate(*job)) {
    return absl::InvalidArgumentError(absl::StrCat(issue.key, ": ", issue.message));
  }
  const absl::StatusOr<weft::Plan> plan = FindPlan(*job, Purpose::kRun);
  if (!plan.ok()) return plan.status();
  v1::PlanReply reply;
  *reply.mutable_layout() = ToProto(plan->layout).properties();
  reply.set_planned_bytes(plan->peak_bytes());
  reply.set_predicted_step_s(plan->time.total_s());
  reply.set_ranks(plan->layout.world_size());
  return reply;
}

LogLevel LevelOf(v1::SetLogLevelRequest::Level level) {
  switch (level) {
    case v1::SetLogLevelRequest::WARNING:
      return LogLevel::kWarning;
    case v1::SetLogLevelRequest::ERROR:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

}  // namespace

JobsDoor::Unary* JobsDoor::Finish(Context* context, const absl::Status& status) const {
  if (absl::IsPermissionDenied(status)) {
    const Caller caller = find_(*context);
    LogWarning(
        absl::StrCat("denied: ", caller.name, " (uid ", caller.uid, "): ", status.message()));
  }
  Unary* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

JobsDoor::Unary* JobsDoor::Version(Context* context, const v1::VersionRequest*,
                                   v1::VersionReply* reply) {
  reply->set_api_version(kApiVersion);
  reply->set_version(version_);
  reply->set_pid(getpid());
  return Finish(context, absl::OkStatus());
}

JobsDoor::Unary* JobsDoor::Plan(Context* context, const v1::PlanRequest* request,
                                v1::PlanReply* reply) {
  absl::StatusOr<v1::PlanReply> plan = PlanFor(*request);
  if (plan.ok()) *reply = *std::move(plan);
  return Finish(context, plan.status());
}

JobsDoor::Unary* JobsDoor::Submit(Context* context, const v1::SubmitRequest* request,
                                  v1::SubmitReply* reply) {
  const Caller caller = find_(*context);
  if (caller.role == Role::kViewer) {
    return Finish(context, absl::PermissionDeniedError("a viewer may not submit jobs"));
  }
  Unary* const reactor = context->DefaultReactor();
  fleet_.Submit(caller, *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::List(Context* context, const v1::ListRequest* request,
                                v1::ListReply* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.List(*request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::Get(Context* context, const v1::GetRequest* request, v1::Job* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.Get(*request, Into(reactor, reply));
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchReply>* JobsDoor::Watch(Context*,
                                                          const v1::WatchRequest* request) {
  return new JobsStream(fleet_, ++ids_, *request);
}

JobsDoor::Unary* JobsDoor::Stop(Context* context, const v1::StopRequest* request, v1::Job* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.Stop(find_(*context), *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::Pause(Context* context, const v1::PauseRequest* request,
                                 v1::Job* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.Pause(find_(*context), *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::Resume(Context* context, const v1::ResumeRequest* request,
                                  v1::Job* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.Resume(find_(*context), *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::Resize(Context* context, const v1::ResizeRequest* request,
                                  v1::Job* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.Resize(find_(*context), *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::Hosts(Context* context, const v1::HostsRequest*, v1::HostsReply* reply) {
  Unary* const reactor = context->DefaultReactor();
  fleet_.Hosts(Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::DrainHost(Context* context, const v1::DrainHostRequest* request,
                                     v1::Host* reply) {
  const Caller caller = find_(*context);
  if (caller.role != Role::kOperator) {
    return Finish(context, absl::PermissionDeniedError("hosts are drained by operators"));
  }
  Unary* const reactor = context->DefaultReactor();
  fleet_.DrainHost(caller, *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::UndrainHost(Context* context, const v1::UndrainHostRequest* request,
                                       v1::Host* reply) {
  const Caller caller = find_(*context);
  if (caller.role != Role::kOperator) {
    return Finish(context, absl::PermissionDeniedError("hosts are undrained by operators"));
  }
  Unary* const reactor = context->DefaultReactor();
  fleet_.UndrainHost(caller, *request, Into(reactor, reply));
  return reactor;
}

JobsDoor::Unary* JobsDoor::SetLogLevel(Context* context, const v1::SetLogLevelRequest* request,
                                       v1::SetLogLevelReply* reply) {
  if (find_(*context).role != Role::kOperator) {
    return Finish(context, absl::PermissionDeniedError("the log is set by operators"));
  }
  static std::atomic<v1::SetLogLevelRequest::Level> level = v1::SetLogLevelRequest::INFO;
  reply->set_before(level.exchange(request->level()));
  SetLeastLogLevel(LevelOf(request->level()));
  return Finish(context, absl::OkStatus());
}

}  // namespace weft
