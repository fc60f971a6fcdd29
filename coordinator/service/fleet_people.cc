// The fleet driver's part that has to do with people: their wishes, their questions, their
// watching.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/service/answer_book.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_driver.h"
#include "plan/errors.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxQueuedJobs = 10000;
constexpr size_t kMaxJobWatchers = 1000;
constexpr int kPageSize = 100;
constexpr int kMaxPageSize = 1000;
constexpr size_t kEventsAMessage = 500;
constexpr double kMaxDeadlineS = 1e6;

absl::Status Busy() {
  return absl::UnavailableError("weftd is busy or closing; ask again");
}

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
        AnswerLater(request.request_id(), reply,
                    Begin<Message, Request>(call, request, make, haste));
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
  if (found.phase == FleetPhase::kOver) return IsOverAlready(job, found);
  return job;
}

absl::StatusOr<FleetDriver::Change<v1::SubmitReply>> FleetDriver::OnSubmit(
    const Caller& caller, const v1::SubmitRequest& request) {
  if (request.brings_hosts()) {
    return absl::InvalidArgumentError(
        "brings_hosts: this weftd places jobs on the hosts of its fleet; start the job with `weft "
        "run` to bring your own");
  }
  ASSIGN_OR_RETURN(const FleetRequest asked, RequestOf(request, caller.name, caller.uid));
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
  WriteRequest(asked, &queued);
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
  Mutate<v1::SubmitReply, v1::SubmitRequest>(
      "Submit", std::move(request), reply,
      [this, caller](const v1::SubmitRequest& asked) { return OnSubmit(caller, asked); });
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
    proto::FleetRecord record;
    record.mutable_resume_asked()->set_job(job);
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
    return book_.entry(job).request.submission();
  };
  const bool posted = queue_of_tasks_.Post(
      [this, request = std::move(request), reply, answer] { AnswerLater(reply, answer(request)); });
  if (!posted) reply(Busy());
}

void FleetDriver::Resize(const Caller& caller, v1::ResizeRequest request,
                         const Reply<v1::Job>& reply) {
  using Result = absl::StatusOr<Change<v1::Job>>;
  const auto make = [this, caller](const v1::ResizeRequest& asked) -> Result {
    RETURN_IF_ERROR(CheckSize(asked));
    ASSIGN_OR_RETURN(const int64_t job, JobToChange(caller, asked));
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

// ---- questions ----

// Where the queue has changed, it is looked at again.
v1::Job FleetDriver::MessageOf(int64_t job) {
  if (queue_revision_ != book_.fleet().revision) {
    queue_revision_ = book_.fleet().revision;
    queue_.clear();
    queue_places_.clear();
    for (QueuedJob& each : Queue(book_.fleet(), options_.unix_ms())) {
      queue_places_[each.job] = std::ssize(queue_places_) + 1;
      queue_[each.job] = std::move(each);
    }
  }
  const auto waits = queue_.find(job);
  v1::Job message = JobMessage(book_.fleet(), job, book_.entry(job),
                               waits == queue_.end() ? 0 : queue_places_.at(job),
                               waits == queue_.end() ? "" : waits->second.reason);
  const auto step = last_steps_.find(job);
  if (step != last_steps_.end()) {
    message.set_step(std::max(message.step(), step->second.step().step()));
    message.set_peak_bytes(std::max(message.peak_bytes(), step->second.step().peak_bytes()));
  }
  return message;
}

v1::Host FleetDriver::MessageOf(const std::string& machine) const {
  const auto offer = book_.offers().find(machine);
  return HostMessage(book_.fleet(), machine,
                     offer == book_.offers().end() ? nullptr : &offer->second, options_.unix_ms());
}

void FleetDriver::Get(v1::GetRequest request, const Reply<v1::Job>& reply) {
  const auto answer = [this](const std::string& name) -> absl::StatusOr<v1::Job> {
    ASSIGN_OR_RETURN(const int64_t job, FindJob(name));
    return MessageOf(job);
  };
  const bool posted = queue_of_tasks_.Post([this, request = std::move(request), reply, answer] {
    AnswerLater(reply, answer(request.job_id()));
  });
  if (!posted) reply(Busy());
}

void FleetDriver::List(v1::ListRequest request, const Reply<v1::ListReply>& reply) {
  const bool posted = queue_of_tasks_.Post(
      [this, request = std::move(request), reply] { AnswerLater(reply, OnList(request)); });
  if (!posted) reply(Busy());
}

// A page's token is the number of the job that the page before has ended with.
absl::StatusOr<v1::ListReply> FleetDriver::OnList(const v1::ListRequest& request) {
  int64_t before = book_.fleet().newest_job + 1;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &before)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is of no page"));
  }
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size: ", request.page_size(), " is outside 0 to ", kMaxPageSize));
  }
  const int size = request.page_size() == 0 ? kPageSize : request.page_size();
  v1::ListReply reply;
  reply.set_revision(book_.revision());
  const auto& jobs = book_.fleet().jobs;
  for (auto each = std::make_reverse_iterator(jobs.lower_bound(before)); each != jobs.rend();
       ++each) {
    const auto& [number, job] = *each;
    if (!request.owner().empty() && request.owner() != job.request.owner) continue;
    const std::string phase = PhaseOf(job, book_.entry(number)).phase;
    const bool is_wanted = request.phases().empty() ||
                           std::count(request.phases().begin(), request.phases().end(), phase) > 0;
    if (!is_wanted) continue;
    if (reply.jobs_size() == size) {
      reply.set_next_page_token(reply.jobs(size - 1).job_id().substr(JobName(0).size() - 1));
      return reply;
    }
    *reply.add_jobs() = MessageOf(number);
  }
  return reply;
}

void FleetDriver::Hosts(const Reply<v1::HostsReply>& reply) {
  const auto answer = [this] {
    v1::HostsReply hosts;
    hosts.set_revision(book_.revision());
    for (const auto& [machine, host] : book_.fleet().hosts) {
      *hosts.add_hosts() = MessageOf(machine);
    }
    std::sort(hosts.mutable_hosts()->begin(), hosts.mutable_hosts()->end(),
              [](const v1::Host& a, const v1::Host& b) { return a.host() < b.host(); });
    return hosts;
  };
  const bool posted = queue_of_tasks_.Post(
      [this, reply, answer] { AnswerLater(reply, absl::StatusOr<v1::HostsReply>(answer())); });
  if (!posted) reply(Busy());
}

// ---- watching ----

void FleetDriver::Watch(int64_t id, v1::WatchRequest request, JobsPort port) {
  const auto close = port.close;
  const bool posted =
      queue_of_tasks_.Post([this, id, request = std::move(request), port = std::move(port)] {
        const absl::Status status = OnWatch(id, request, port);
        if (!status.ok()) port.close(status);
      });
  if (!posted) close(Busy());
}

void FleetDriver::Unwatch(int64_t id) {
  queue_of_tasks_.Post([this, id] { watchers_.erase(id); }, 0, TaskQueue::Room::kAlways);
}

absl::Status FleetDriver::OnWatch(int64_t id, const v1::WatchRequest& request,
                                  const JobsPort& port) {
  Watcher watcher{.port = port, .seen = request.after_revision()};
  if (!request.job_id().empty()) {
    ASSIGN_OR_RETURN(watcher.job, FindJob(request.job_id()));
  }
  if (watchers_.size() >= kMaxJobWatchers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kMaxJobWatchers, " watchers already; close one"));
  }
  if (request.after_revision() < 0 || request.after_revision() > book_.revision()) {
    return absl::OutOfRangeError(absl::StrCat("after_revision: ", request.after_revision(),
                                              " is outside 0 to the newest, ", book_.revision()));
  }
  if (request.after_revision() < book_.forgotten_revision()) {
    return absl::OutOfRangeError(absl::StrCat("after_revision: ", request.after_revision(),
                                              " is too old; list the jobs, and watch after ",
                                              book_.forgotten_revision(), " or a later one"));
  }
  for (const auto& [job, step] : last_steps_) {
    if (watcher.job == 0 || watcher.job == job) new_steps_[job] = step;
  }
  watchers_[id] = std::move(watcher);
  return absl::OkStatus();
}

bool FleetDriver::IsOfInterest(const Watcher& watcher, const v1::Event& event) const {
  return watcher.job == 0 || event.job_id() == JobName(watcher.job);
}

// Whole revisions, and a bookmark at the end, also where nothing came of the job that is watched.
void FleetDriver::SendEvents(Watcher& watcher) {
  const auto& events = book_.events();
  auto each = std::partition_point(events.begin(), events.end(), [&](const v1::Event& event) {
    return event.revision() <= watcher.seen;
  });
  v1::WatchReply reply;
  for (; each != events.end(); ++each) {
    const bool is_full = static_cast<size_t>(reply.events_size()) >= kEventsAMessage;
    if (is_full && reply.events().rbegin()->revision() != each->revision()) {
      reply.set_revision(reply.events().rbegin()->revision());
      watcher.port.send(reply);
      reply.Clear();
    }
    if (IsOfInterest(watcher, *each)) *reply.add_events() = *each;
  }
  watcher.seen = book_.revision();
  if (reply.events().empty()) return;
  reply.set_revision(watcher.seen);
  watcher.port.send(reply);
}

// All that is new about steps goes to those who watch all jobs as one message.
void FleetDriver::SendSteps() {
  v1::WatchReply all;
  all.set_revision(book_.revision());
  for (auto& [job, step] : new_steps_) {
    step.set_revision(book_.revision());
    *all.add_events() = step;
  }
  for (const auto& [id, watcher] : watchers_) {
    if (watcher.job == 0) {
      watcher.port.send(all);
    } else if (const auto step = new_steps_.find(watcher.job); step != new_steps_.end()) {
      v1::WatchReply one;
      one.set_revision(book_.revision());
      *one.add_events() = step->second;
      watcher.port.send(one);
    }
  }
  new_steps_.clear();
}

void FleetDriver::TellWatchers() {
  for (auto& [id, watcher] : watchers_) {
    if (watcher.seen < book_.revision()) SendEvents(watcher);
  }
  if (!new_steps_.empty()) SendSteps();
  std::erase_if(watchers_, [&](const auto& each) {
    const Watcher& watcher = each.second;
    if (watcher.job == 0) return false;
    const auto job = book_.fleet().jobs.find(watcher.job);
    const bool is_over = job == book_.fleet().jobs.end() || job->second.phase == FleetPhase::kOver;
    if (is_over) watcher.port.close(absl::OkStatus());
    return is_over;
  });
}

}  // namespace weft
