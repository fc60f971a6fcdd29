#include "coordinator/service/run_door.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "coordinator/service/caller.h"
#include "coordinator/service/control_calls.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/logs_stream.h"
#include "plan/errors.h"
#include "process/outbox.h"
#include "process/rpc.h"

namespace weft {
namespace {

constexpr size_t kMaxRunAnswers = 1000;
constexpr size_t kMaxWaitingReplies = 20000;  // for one watcher: its whole history and more
constexpr int kEventsOfAReply = 500;
constexpr int kMostJobsOfAPage = 1000;

proto::JobRequest JobOf(const std::string& job_id) {
  proto::JobRequest request;
  request.set_job_id(job_id);
  return request;
}

// RunWatch makes messages of what a Driver tells a watcher: whole revisions, in order. It is shared
// by the stream and the Driver, whichever lives longer.
class RunWatch {
 public:
  RunWatch(v1::WatchRequest request, std::function<void(const v1::WatchReply&)> send,
           std::function<void(const absl::Status&)> close)
      : request_(std::move(request)),
        send_(std::move(send)),
        close_(std::move(close)),
        seen_(request_.after_revision()) {}

  // On the Driver's thread. Out of range: nobody was ever told of such a revision.
  absl::Status Begin(const proto::JobStatus& status) {
    job_id_ = status.job_id();
    if (seen_ >= 0 && seen_ <= status.revision()) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat("after_revision: ", seen_,
                                              " is outside 0 to the newest, ", status.revision()));
  }

  // How the job stands once the events that follow have happened. Whoever watches one job has seen
  // the last of it when another one has taken its place.
  void Stands(const proto::JobStatus& status) {
    const bool is_another = job_id_ != status.job_id();
    job_id_ = status.job_id();
    if (is_another && !request_.job_id().empty()) close_(absl::OkStatus());
  }

  void Tell(const std::vector<proto::JobEvent>& events) {
    v1::WatchReply reply;
    for (const proto::JobEvent& each : events) {
      // The steps are not journaled: a successor does not know their revision, but this one.
      const int64_t revision = each.has_step() ? seen_ : each.revision();
      if (reply.events_size() >= kEventsOfAReply && revision != seen_) Send(reply);
      seen_ = std::max(seen_, revision);
      std::optional<v1::Event> event = EventMessage(each);
      if (!event) continue;
      event->set_revision(revision);
      event->set_job_id(job_id_);
      *reply.add_events() = *std::move(event);
    }
    Send(reply);
  }

  // A bookmark: nothing up to the revision is missing.
  void Mark(int64_t revision) {
    seen_ = std::max(seen_, revision);
    v1::WatchReply reply;
    reply.set_revision(seen_);
    send_(reply);
  }

 private:
  void Send(v1::WatchReply& reply) {
    if (reply.events().empty()) return;
    reply.set_revision(seen_);
    send_(reply);
    reply.Clear();
  }

  const v1::WatchRequest request_;
  const std::function<void(const v1::WatchReply&)> send_;
  const std::function<void(const absl::Status&)> close_;
  // The Driver's thread alone has these two.
  int64_t seen_;  // the newest durable revision that was told of
  std::string job_id_;
};

// One call of Watch. The Driver is asked how the job stands before, and after what was missed.
class RunStream final : public grpc::ServerWriteReactor<v1::WatchReply> {
 public:
  RunStream(Driver& driver, int64_t id, const v1::WatchRequest& request)
      : driver_(driver),
        id_(id),
        outbox_(std::make_shared<Box>(this, kMaxWaitingReplies)),
        gate_(std::make_shared<Gate>()) {
    const auto watch = std::make_shared<RunWatch>(
        request, [box = outbox_](const v1::WatchReply& reply) { box->Send(reply); },
        [box = outbox_](const absl::Status& why) { box->Close(why); });
    driver_.GetJob(
        JobOf(request.job_id()), [driver = &driver_, id, request, watch, box = outbox_,
                                  gate = gate_](const absl::StatusOr<proto::JobStatus>& status) {
          const absl::Status begun = status.ok() ? watch->Begin(*status) : status.status();
          if (!begun.ok()) return box->Close(begun);
          const std::lock_guard<std::mutex> lock(gate->mutex);
          if (!gate->is_gone) Begin(*driver, id, request, watch, box);
        });
  }

  void OnWriteDone(bool ok) override { outbox_->WriteDone(ok); }
  void OnCancel() override { outbox_->Close(absl::CancelledError("the watcher hung up")); }
  void OnDone() override {
    {
      const std::lock_guard<std::mutex> lock(gate_->mutex);
      gate_->is_gone = true;
      driver_.Unwatch(id_);
    }
    outbox_->ReactorIsGone();
    delete this;  // gRPC's callback API: a reactor owns itself
  }

 private:
  using Box = Outbox<RunStream, v1::WatchReply>;
  // A watcher that has gone must not be begun with.
  struct Gate {
    std::mutex mutex;  // guards is_gone
    bool is_gone = false;
  };

  static void Begin(Driver& driver, int64_t id, const v1::WatchRequest& request,
                    const std::shared_ptr<RunWatch>& watch, const std::shared_ptr<Box>& box) {
    proto::WatchRequest asked;
    asked.set_job_id(request.job_id());
    asked.set_after_revision(request.after_revision());
    driver.Watch(
        id, asked,
        {.send = [watch](const std::vector<proto::JobEvent>& events) { watch->Tell(events); },
         .close = [box](const absl::Status& why) { box->Close(why); },
         .stands = [watch](const proto::JobStatus& status) { watch->Stands(status); }});
    driver.GetJob(JobOf(""), [watch](const absl::StatusOr<proto::JobStatus>& status) {
      if (status.ok()) watch->Mark(status->revision());
    });
  }

  Driver& driver_;
  const int64_t id_;
  const std::shared_ptr<Box> outbox_;
  const std::shared_ptr<Gate> gate_;
};

absl::Status CheckPage(const v1::ListRequest& request) {
  if (!request.page_token().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is of no page"));
  }
  if (request.page_size() >= 0 && request.page_size() <= kMostJobsOfAPage) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("page_size: ", request.page_size(), " is outside 0 to ", kMostJobsOfAPage));
}

bool IsWanted(const v1::ListRequest& request, const v1::Job& job) {
  const bool has_phase =
      request.phases().empty() ||
      std::count(request.phases().begin(), request.phases().end(), job.phase()) > 0;
  return has_phase && (request.owner().empty() || request.owner() == job.owner());
}

RunDoor::Unary* Refuse(RunDoor::Context* context, const absl::Status& why) {
  RunDoor::Unary* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(why));
  return reactor;
}

// Some calls take a fleet and a queue.
RunDoor::Unary* RefuseCall(RunDoor::Context* context, const char* call) {
  return Refuse(context, absl::FailedPreconditionError(absl::StrCat(
                             call,
                             " is of a weftd of many jobs; this one is weft run's own: weft stop "
                             "saves the run, and weft run goes on with it, on other hosts too")));
}

}  // namespace

RunDoor::RunDoor(std::string version, Driver& driver, std::atomic<int64_t>& ids)
    : version_(std::move(version)),
      driver_(driver),
      ids_(ids),
      owner_uid_(static_cast<int64_t>(geteuid())),
      owner_(UserName(owner_uid_)),
      answers_(kMaxRunAnswers) {}

void RunDoor::AskForJob(const std::string& job_id, const Reply<v1::Job>& reply) {
  driver_.GetJob(JobOf(job_id), [this, reply](const absl::StatusOr<proto::JobStatus>& status) {
    if (!status.ok()) return reply(status.status());
    reply(RunMessage(*status, owner_uid_, owner_));
  });
}

template <typename Request, typename Message>
RunDoor::Unary* RunDoor::Mutate(
    Context* context, const char* call, const Request& request, Message* reply,
    const std::function<void(const Request&, const Reply<Message>&)>& make) {
  Unary* const reactor = context->DefaultReactor();
  const AnswerBook::Tell tell = [reactor, reply](const absl::StatusOr<std::string>& answer) {
    if (answer.ok()) reply->ParseFromString(*answer);
    reactor->Finish(ToGrpc(answer.status()));
  };
  answers_.Take(request.request_id(), AskedText(call, request), tell,
                [make, request](const AnswerBook::Tell& take) {
                  make(request, [take](const absl::StatusOr<Message>& answer) {
                    if (!answer.ok()) return take(answer.status());
                    take(answer->SerializeAsString());
                  });
                });
  return reactor;
}

void RunDoor::Change(const std::string& job_id, const Reply<v1::Job>& reply,
                     const std::function<void(const Acknowledge&)>& ask) {
  AskForJob(job_id, [this, job_id, reply, ask](const absl::StatusOr<v1::Job>& job) {
    if (!job.ok()) return reply(job);
    if (IsLastPhase(job->phase())) {
      return reply(absl::FailedPreconditionError(
          absl::StrCat(job->job_id(), " is ", job->phase(), " already")));
    }
    ask([this, job_id, reply](const absl::Status& asked) {
      if (!asked.ok()) return reply(asked);
      AskForJob(job_id, reply);
    });
  });
}

RunDoor::Unary* RunDoor::Version(Context* context, const v1::VersionRequest*,
                                 v1::VersionReply* reply) {
  reply->set_api_version(kApiVersion);
  reply->set_version(version_);
  reply->set_pid(getpid());
  reply->set_is_private(true);
  Unary* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

RunDoor::Unary* RunDoor::Plan(Context* context, const v1::PlanRequest* request,
                              v1::PlanReply* reply) {
  Unary* const reactor = context->DefaultReactor();
  const absl::Status tried = Caught("Plan", [&] { Into(reactor, reply)(PlanFor(*request)); });
  if (!tried.ok()) reactor->Finish(ToGrpc(tried));
  return reactor;
}

RunDoor::Unary* RunDoor::Submit(Context* context, const v1::SubmitRequest* request,
                                v1::SubmitReply* reply) {
  if (!request->brings_hosts()) {
    return Refuse(context, absl::InvalidArgumentError(
                               "brings_hosts: is false, but this weftd has no hosts: it is weft "
                               "run's own; submit to a weftd of many jobs"));
  }
  const std::function<void(const v1::SubmitRequest&, const Reply<v1::SubmitReply>&)> make =
      [this](const v1::SubmitRequest& asked, const Reply<v1::SubmitReply>& answer) {
        proto::SubmitJobRequest submission = DriverRequestOf(asked.submission());
        submission.set_request_id(asked.request_id());
        driver_.Submit(std::move(submission),
                       [answer](const absl::StatusOr<proto::SubmitJobReply>& taken) {
                         if (!taken.ok()) return answer(taken.status());
                         v1::SubmitReply told;
                         told.set_job_id(taken->job_id());
                         told.set_revision(taken->revision());
                         answer(told);
                       });
      };
  return Mutate(context, "Submit", *request, reply, make);
}

RunDoor::Unary* RunDoor::List(Context* context, const v1::ListRequest* request,
                              v1::ListReply* reply) {
  const absl::Status page = CheckPage(*request);
  if (!page.ok()) return Refuse(context, page);
  Unary* const reactor = context->DefaultReactor();
  const Reply<v1::ListReply> answer = Into(reactor, reply);
  AskForJob("", [asked = *request, answer](const absl::StatusOr<v1::Job>& job) {
    v1::ListReply list;
    if (!job.ok() && !absl::IsNotFound(job.status())) return answer(job.status());
    if (job.ok()) list.set_revision(job->revision());
    if (job.ok() && IsWanted(asked, *job)) *list.add_jobs() = *job;
    answer(list);
  });
  return reactor;
}

RunDoor::Unary* RunDoor::Get(Context* context, const v1::GetRequest* request, v1::Job* reply) {
  Unary* const reactor = context->DefaultReactor();
  AskForJob(request->job_id(), Into(reactor, reply));
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchReply>* RunDoor::Watch(Context*,
                                                         const v1::WatchRequest* request) {
  return new RunStream(driver_, ++ids_, *request);
}

RunDoor::Unary* RunDoor::Stop(Context* context, const v1::StopRequest* request, v1::Job* reply) {
  if (request->deadline_s() != 0) {
    return Refuse(context, absl::InvalidArgumentError(
                               absl::StrCat("deadline_s: ", request->deadline_s(),
                                            " is for jobs of a weftd of many; stop this run at "
                                            "level NOW when the time is up")));
  }
  if (!v1::StopRequest::Level_IsValid(request->level())) {
    return Refuse(context, absl::InvalidArgumentError(absl::StrCat(
                               "level: ", static_cast<int>(request->level()), " is none")));
  }
  const std::function<void(const v1::StopRequest&, const Reply<v1::Job>&)> make =
      [this](const v1::StopRequest& asked, const Reply<v1::Job>& answer) {
        proto::StopJobRequest stop;
        stop.set_job_id(asked.job_id());
        stop.set_now(asked.level() == v1::StopRequest::NOW);
        stop.set_expected_revision(asked.expected_revision());
        Change(asked.job_id(), answer,
               [this, stop](const Acknowledge& done) { driver_.StopJob(stop, done); });
      };
  return Mutate(context, "Stop", *request, reply, make);
}

RunDoor::Unary* RunDoor::Checkpoint(Context* context, const v1::CheckpointRequest* request,
                                    v1::Job* reply) {
  const std::function<void(const v1::CheckpointRequest&, const Reply<v1::Job>&)> make =
      [this](const v1::CheckpointRequest& asked, const Reply<v1::Job>& answer) {
        proto::CheckpointJobRequest checkpoint;
        checkpoint.set_job_id(asked.job_id());
        checkpoint.set_expected_revision(asked.expected_revision());
        Change(asked.job_id(), answer, [this, checkpoint](const Acknowledge& done) {
          driver_.Checkpoint(checkpoint, done);
        });
      };
  return Mutate(context, "Checkpoint", *request, reply, make);
}

grpc::ServerWriteReactor<v1::LogsReply>* RunDoor::Logs(Context*, const v1::LogsRequest* request) {
  const auto ask = [this](const v1::GetRequest& job, const Reply<v1::Job>& answer) {
    AskForJob(job.job_id(), answer);
  };
  absl::StatusOr<CallLimits::Held> held = limits_.TakeLogs(owner_);
  if (!held.ok()) return new Refusal<v1::LogsReply>(held.status());
  return new LogsStream(ask, *std::move(held), *request);
}

RunDoor::Unary* RunDoor::Hosts(Context* context, const v1::HostsRequest*, v1::HostsReply* reply) {
  Unary* const reactor = context->DefaultReactor();
  const Reply<v1::HostsReply> answer = Into(reactor, reply);
  driver_.GetJob(JobOf(""), [this, answer](const absl::StatusOr<proto::JobStatus>& status) {
    if (!status.ok()) return answer(status.status());
    answer(RunHosts(*status, owner_uid_, owner_));
  });
  return reactor;
}

RunDoor::Unary* RunDoor::SetLogLevel(Context* context, const v1::SetLogLevelRequest* request,
                                     v1::SetLogLevelReply* reply) {
  const std::function<void(const v1::SetLogLevelRequest&, const Reply<v1::SetLogLevelReply>&)>
      make =
          [this](const v1::SetLogLevelRequest& asked, const Reply<v1::SetLogLevelReply>& answer) {
            answer(SetLogLevelTo(asked.level(), owner_));
          };
  return Mutate(context, "SetLogLevel", *request, reply, make);
}

RunDoor::Unary* RunDoor::Pause(Context* context, const v1::PauseRequest*, v1::Job*) {
  return RefuseCall(context, "Pause");
}
RunDoor::Unary* RunDoor::Resume(Context* context, const v1::ResumeRequest*, v1::Job*) {
  return RefuseCall(context, "Resume");
}
RunDoor::Unary* RunDoor::Resize(Context* context, const v1::ResizeRequest*, v1::Job*) {
  return RefuseCall(context, "Resize");
}
RunDoor::Unary* RunDoor::DrainHost(Context* context, const v1::DrainHostRequest*, v1::Host*) {
  return RefuseCall(context, "DrainHost");
}
RunDoor::Unary* RunDoor::UndrainHost(Context* context, const v1::UndrainHostRequest*, v1::Host*) {
  return RefuseCall(context, "UndrainHost");
}

}  // namespace weft
