// The fleet driver's part that has to do with what people wish; what they ask and watch is in
// fleet_questions.cc.
#include <algorithm>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "coordinator/service/answer_book.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_driver.h"
#include "coordinator/service/run_folders.h"
#include "plan/errors.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxQueuedJobs = 10000;
constexpr double kMaxDeadlineS = 1e6;

absl::Status IsOverAlready(int64_t job, const FleetJob& over) {
  return absl::FailedPreconditionError(absl::StrCat(JobName(job), " is ", over.end, " already"));
}

// MIN and MAX of a resize, where MIN 0 means MAX.
absl::Status CheckSize(const v1::ResizeRequest& request) {
  if (request.nodes() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("nodes: ", request.nodes(), " is too few; use 1 or more"));
  }
  if (request.least_nodes() >= 0 && request.least_nodes() <= request.nodes()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("least_nodes: ", request.least_nodes(),
                                                 " is outside 0 to nodes, ", request.nodes()));
}

}  // namespace

// ---- wishes ----

template <typename Message, typename Request>
void FleetDriver::Mutate(const char* call, Request request, const Reply<Message>& reply,
                         const Maker<Message, Request>& make, Haste haste) {
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  const bool posted = queue_of_tasks_.Post(
      [this, call, request = std::move(request), reply, make, haste] {
        absl::Status begun;
        const absl::Status tried =
            Caught(call, [&] { begun = Begin<Message, Request>(call, request, make, haste); });
        AnswerLater(request.request_id(), reply, tried.ok() ? begun : tried);
      },
      bytes);
  if (!posted) reply(Busy());
}

// OK: what was asked is part of the book now, or was before.
template <typename Message, typename Request>
absl::Status FleetDriver::Begin(const char* call, const Request& request,
                                const Maker<Message, Request>& make, Haste haste) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  const std::string asked = AskedText(call, request);
  if (const proto::Answered* before = book_.FindAnswer(request.request_id())) {
    if (before->asked() == asked) return absl::OkStatus();
    return UsedBefore(request.request_id());
  }
  if (haste == Haste::kCanWait) RETURN_IF_ERROR(journal_->behind());
  ASSIGN_OR_RETURN(Change<Message> change, make(request));
  change.record.mutable_answered()->set_request_id(request.request_id());
  change.record.mutable_answered()->set_asked(asked);
  Happened(std::move(change.record),
           [reply = std::move(change.reply)] { return reply().SerializeAsString(); });
  return absl::OkStatus();
}

// The reply is the kept one, which is made at the round's end.
template <typename Message>
void FleetDriver::AnswerLater(const std::string& request_id, const Reply<Message>& reply,
                              const absl::Status& begun) {
  answers_.push_back([this, request_id, reply, begun](const absl::Status& durable) {
    if (!begun.ok()) return reply(begun);
    if (!durable.ok()) return reply(durable);
    Message message;
    const proto::Answered* const kept = book_.FindAnswer(request_id);
    const bool is_one = kept != nullptr && message.ParseFromString(kept->reply());
    reply(is_one ? absl::StatusOr<Message>(message) : Busy());
  });
}

template <typename Message>
void FleetDriver::AnswerLater(const Reply<Message>& reply, absl::StatusOr<Message> answer) {
  answers_.push_back([reply, answer = std::move(answer)](const absl::Status& durable) {
    reply(answer.ok() && !durable.ok() ? absl::StatusOr<Message>(durable) : answer);
  });
}

FleetDriver::Change<v1::Job> FleetDriver::ChangeOf(int64_t job, proto::FleetRecord record) {
  const auto reply = [this, job] {
    if (book_.fleet().jobs.count(job) > 0) return MessageOf(job);
    v1::Job forgotten;  // it is over, and so many others are since
    forgotten.set_job_id(JobName(job));
    return forgotten;
  };
  return {std::move(record), reply};
}

FleetDriver::Change<v1::Host> FleetDriver::ChangeOf(const std::string& machine,
                                                    proto::FleetRecord record) {
  return {std::move(record), [this, machine] { return MessageOf(machine); }};
}

absl::StatusOr<int64_t> FleetDriver::FindJob(const std::string& name) const {
  if (name.empty() && book_.fleet().newest_job > 0) return book_.fleet().newest_job;
  if (name.empty()) return absl::NotFoundError("there is no job yet; submit one");
  ASSIGN_OR_RETURN(const int64_t job, ParseJobName(name));
  if (book_.fleet().jobs.count(job) > 0) return job;
  return absl::NotFoundError(absl::StrCat("job \"", name, "\": is not known here"));
}

template <typename Request>
absl::StatusOr<int64_t> FleetDriver::JobToChange(const Caller& caller,
                                                 const Request& request) const {
  if (request.job_id().empty()) {
    return absl::InvalidArgumentError("job_id: is empty; name the job to change, as job-17");
  }
  ASSIGN_OR_RETURN(const int64_t job, FindJob(request.job_id()));
  const FleetJob& found = book_.fleet().jobs.at(job);
  const bool is_own =
      caller.uid >= 0 ? caller.uid == found.request.owner_uid : caller.name == found.request.owner;
  if (caller.role != Role::kOperator && !(caller.role == Role::kSubmitter && is_own)) {
    LogWarning(absl::StrCat("denied: ", CallerText(caller), " wants to change ", JobName(job),
                            " of ", found.request.owner));
    return absl::PermissionDeniedError(absl::StrCat(JobName(job), " is ", found.request.owner,
                                                    "'s; its owner or an operator may change it"));
  }
  const int64_t revision = book_.entry(job).revision;
  if (request.expected_revision() != 0 && request.expected_revision() != revision) {
    return absl::AbortedError(absl::StrCat(JobName(job), " is at revision ", revision, ", not at ",
                                           request.expected_revision(),
                                           "; look at it again before you change it"));
  }
  const bool is_resumed = std::is_same_v<Request, v1::ResumeRequest> && found.end == "SUSPENDED";
  if (found.phase == FleetPhase::kOver && !is_resumed) return IsOverAlready(job, found);
  return job;
}

// A job that was stopped goes on where it was, unless another one has gone on there.
absl::Status FleetDriver::CheckResumable(int64_t job) const {
  const auto folder_of = [this](int64_t each) {
    return book_.entry(each).request.submission().run_folder();
  };
  const auto& jobs = book_.fleet().jobs;
  if (jobs.at(job).phase != FleetPhase::kOver) return absl::OkStatus();
  for (auto later = jobs.upper_bound(job); later != jobs.end(); ++later) {
    if (folder_of(later->first) != folder_of(job)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(JobName(job), ": ", JobName(later->first), " has gone on in ", folder_of(job),
                     " since; submit the job file again to go on from there"));
  }
  return absl::OkStatus();
}

// Above what weftd knows of nobody could say when they will be there.
absl::Status FleetDriver::CheckHostsAreKnown(int64_t job, const v1::ResizeRequest& asked) const {
  const FleetRequest& request = book_.fleet().jobs.at(job).request;
  const int least = asked.least_nodes() == 0 ? asked.nodes() : asked.least_nodes();
  int known = 0;
  for (const auto& [machine, host] : book_.fleet().hosts) {
    if (Admits(host, request) && host.slots >= request.slots_per_node) ++known;
  }
  if (least <= std::max(known, request.least_nodes)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(JobName(job), ": ", least, " hosts are more than the ", known,
                   " that this weftd knows for it, drained and absent ones included; use ", known,
                   " or fewer, or offer more hosts first: weft agent --standing"));
}

absl::StatusOr<FleetDriver::Change<v1::SubmitReply>> FleetDriver::OnSubmit(
    const v1::SubmitRequest& request, const absl::StatusOr<FleetRequest>& read) {
  if (request.brings_hosts()) {
    return absl::InvalidArgumentError(
        "brings_hosts: this weftd places jobs on the hosts of its fleet; start the job with `weft "
        "run` to bring your own");
  }
  RETURN_IF_ERROR(read.status());
  for (const int64_t number : book_.fleet().live) {
    if (book_.entry(number).request.submission().run_folder() !=
        request.submission().run_folder()) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("run_folder: ", request.submission().run_folder(), " is ", JobName(number),
                     "'s, which is not over; stop that one first or choose another folder"));
  }
  const size_t waiting = book_.fleet().live.size();
  if (waiting >= kMaxQueuedJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", waiting, " jobs already; wait until some are over"));
  }
  Change<v1::SubmitReply> change;
  const int64_t job = book_.fleet().newest_job + 1;
  proto::FleetJobQueued& queued = *change.record.mutable_job_queued();
  queued.set_job(job);
  *queued.mutable_request() = request;
  WriteRequest(*read, &queued);
  change.reply = [job, revision = book_.revision() + 1] {
    v1::SubmitReply reply;
    reply.set_job_id(JobName(job));
    reply.set_revision(revision);
    return reply;
  };
  return change;
}

void FleetDriver::Submit(const Caller& caller, v1::SubmitRequest request,
                         const Reply<v1::SubmitReply>& reply) {
  // A job's text is long: it is read here, on the caller's thread, and keeps nobody waiting.
  absl::StatusOr<FleetRequest> read = RequestOf(request, caller.name, caller.uid);
  if (read.ok()) {
    const absl::Status made = MakeFoldersFor(caller, request.submission());
    if (!made.ok()) read = made;
  }
  Mutate<v1::SubmitReply, v1::SubmitRequest>(
      "Submit", std::move(request), reply,
      [this, read](const v1::SubmitRequest& asked) { return OnSubmit(asked, read); });
}

void FleetDriver::Stop(const Caller& caller, v1::StopRequest request, const Reply<v1::Job>& reply) {
  using Result = absl::StatusOr<Change<v1::Job>>;
  const auto make = [this, caller](const v1::StopRequest& asked) -> Result {
    if (!(asked.deadline_s() >= 0 && asked.deadline_s() <= kMaxDeadlineS)) {
      return absl::InvalidArgumentError(
          absl::StrCat("deadline_s: ", asked.deadline_s(), " is outside 0 to ", kMaxDeadlineS));
    }
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
    proto::FleetRecord record;
    proto::FleetJobUnwanted& unwanted = *record.mutable_job_unwanted();
    const int64_t now_ms = options_.unix_ms();
    unwanted.set_job(job);
    unwanted.set_now(asked.level() == v1::StopRequest::NOW);
    if (asked.deadline_s() > 0) {
      unwanted.set_save_until_ms(now_ms + static_cast<int64_t>(asked.deadline_s() * 1000));
    }
    unwanted.set_reason(absl::StrCat("stopped by ", caller.name));
    unwanted.set_unix_ms(now_ms);
    return ChangeOf(job, std::move(record));
  };
  const bool now = request.level() == v1::StopRequest::NOW;
  Mutate<v1::Job, v1::StopRequest>("Stop", std::move(request), reply, make,
                                   now ? Haste::kCannotWait : Haste::kCanWait);
}

void FleetDriver::Pause(const Caller& caller, v1::PauseRequest request,
                        const Reply<v1::Job>& reply) {
  using Result = absl::StatusOr<Change<v1::Job>>;
  const auto make = [this, caller](const v1::PauseRequest& asked) -> Result {
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
    proto::FleetRecord record;
    if (book_.fleet().jobs.at(job).stop != FleetStop::kNone) {
      return absl::FailedPreconditionError(
          absl::StrCat(JobName(job), " is being stopped; it cannot be paused any more"));
    }
    record.mutable_pause_asked()->set_job(job);
    return ChangeOf(job, std::move(record));
  };
  Mutate<v1::Job, v1::PauseRequest>("Pause", std::move(request), reply, make);
}

void FleetDriver::Resume(const Caller& caller, v1::ResumeRequest request,
                         const Reply<v1::Job>& reply) {
  using Result = absl::StatusOr<Change<v1::Job>>;
  const auto make = [this, caller](const v1::ResumeRequest& asked) -> Result {
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
    RETURN_IF_ERROR(CheckResumable(job));
    proto::FleetRecord record;
    const bool is_over = book_.fleet().jobs.at(job).phase == FleetPhase::kOver;
    (is_over ? record.mutable_stopped_resumed() : record.mutable_resume_asked())->set_job(job);
    return ChangeOf(job, std::move(record));
  };
  Mutate<v1::Job, v1::ResumeRequest>("Resume", std::move(request), reply, make);
}

void FleetDriver::FindResized(const Caller& caller, v1::ResizeRequest request,
                              const Reply<std::optional<v1::Submission>>& reply) {
  using Result = absl::StatusOr<std::optional<v1::Submission>>;
  const auto answer = [this, caller](const v1::ResizeRequest& asked) -> Result {
    if (book_.FindAnswer(asked.request_id()) != nullptr) return std::nullopt;
    RETURN_IF_ERROR(CheckSize(asked));
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
    RETURN_IF_ERROR(CheckHostsAreKnown(job, asked));
    return book_.entry(job).request.submission();
  };
  const bool posted = queue_of_tasks_.Post([this, request = std::move(request), reply, answer] {
    Result found = std::optional<v1::Submission>();
    const absl::Status tried = Caught("Resize", [&] { found = answer(request); });
    AnswerLater(reply, tried.ok() ? found : Result(tried));
  });
  if (!posted) reply(Busy());
}

void FleetDriver::Resize(const Caller& caller, v1::ResizeRequest request,
                         const Reply<v1::Job>& reply) {
  using Result = absl::StatusOr<Change<v1::Job>>;
  const auto make = [this, caller](const v1::ResizeRequest& asked) -> Result {
    RETURN_IF_ERROR(CheckSize(asked));
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
    RETURN_IF_ERROR(CheckHostsAreKnown(job, asked));
    proto::FleetRecord record;
    proto::FleetResizeAsked& resize = *record.mutable_resize_asked();
    resize.set_job(job);
    resize.set_least_nodes(asked.least_nodes() == 0 ? asked.nodes() : asked.least_nodes());
    resize.set_nodes(asked.nodes());
    return ChangeOf(job, std::move(record));
  };
  Mutate<v1::Job, v1::ResizeRequest>("Resize", std::move(request), reply, make);
}

// The job's own journal has the wish before it is answered here: a retry after a crash in between
// asks for another checkpoint, which does no harm.
void FleetDriver::Checkpoint(const Caller& caller, v1::CheckpointRequest request,
                             const Reply<v1::Job>& reply) {
  using Result = absl::StatusOr<Change<v1::Job>>;
  const Maker<v1::Job, v1::CheckpointRequest> make =
      [this, caller](const v1::CheckpointRequest& asked) -> Result {
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
    const auto runner = runners_.find(job);
    const bool runs = runner != runners_.end() && !runner->second.is_over;
    if (runs) return ChangeOf(job, {});
    const std::string phase = PhaseOf(book_.fleet().jobs.at(job), book_.entry(job)).phase;
    return absl::FailedPreconditionError(
        absl::StrCat(JobName(job), " is ", phase, ": it has nothing to save"));
  };
  const auto answer = [this, reply, make](const v1::CheckpointRequest& asked) {
    AnswerLater(asked.request_id(), reply,
                Begin<v1::Job, v1::CheckpointRequest>("Checkpoint", asked, make));
  };
  const bool posted =
      queue_of_tasks_.Post([this, request = std::move(request), reply, make, answer] {
        const bool is_new = CheckRequestId(request.request_id()).ok() &&
                            book_.FindAnswer(request.request_id()) == nullptr && make(request).ok();
        if (!is_new) return answer(request);
        const auto asked = [this, request, reply, answer](const absl::Status& status) {
          const bool goes_on =
              status.ok() && queue_of_tasks_.Post([request, answer] { answer(request); });
          if (!goes_on) reply(status.ok() ? Busy() : status);
        };
        runners_.at(*FindJob(request.job_id())).driver->Checkpoint({}, asked);
      });
  if (!posted) reply(Busy());
}

absl::StatusOr<std::string> FleetDriver::FindHost(const std::string& name) const {
  const auto& hosts = book_.fleet().hosts;
  if (hosts.count(name) > 0) return name;
  std::vector<std::string> found;
  for (const auto& [machine, host] : hosts) {
    if (host.host == name) found.push_back(machine);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("host \"", name, "\": is not known here"));
  }
  return absl::InvalidArgumentError(absl::StrCat("host: \"", name, "\" is the name of ",
                                                 found.size(), " hosts; name its machine, as ",
                                                 found.front()));
}

void FleetDriver::DrainHost(const Caller& caller, v1::DrainHostRequest request,
                            const Reply<v1::Host>& reply) {
  using Result = absl::StatusOr<Change<v1::Host>>;
  const auto make = [this, caller](const v1::DrainHostRequest& asked) -> Result {
    ASSIGN_OR_RETURN(const std::string machine, FindHost(asked.host()));
    proto::FleetRecord record;
    record.mutable_host_drained()->set_machine(machine);
    record.mutable_host_drained()->set_moves(asked.move());
    record.mutable_host_drained()->set_reason(
        asked.reason().empty() ? absl::StrCat("by ", caller.name) : asked.reason());
    return ChangeOf(machine, std::move(record));
  };
  Mutate<v1::Host, v1::DrainHostRequest>("DrainHost", std::move(request), reply, make);
}

void FleetDriver::UndrainHost(const Caller& caller, v1::UndrainHostRequest request,
                              const Reply<v1::Host>& reply) {
  using Result = absl::StatusOr<Change<v1::Host>>;
  const auto make = [this](const v1::UndrainHostRequest& asked) -> Result {
    ASSIGN_OR_RETURN(const std::string machine, FindHost(asked.host()));
    proto::FleetRecord record;
    record.mutable_host_undrained()->set_machine(machine);
    return ChangeOf(machine, std::move(record));
  };
  LogInfo(absl::StrCat("host ", request.host(), " is to be used again, says ", caller.name));
  Mutate<v1::Host, v1::UndrainHostRequest>("UndrainHost", std::move(request), reply, make);
}

}  // namespace weft
