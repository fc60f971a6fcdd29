// The fleet driver's part that has to do with what people ask and watch.
#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_driver.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr size_t kMaxJobWatchers = 1000;
constexpr int kPageSize = 100;
constexpr int kMaxPageSize = 1000;
constexpr size_t kEventsAMessage = 500;

// None of a message is higher than that.
template <typename Message>
void CapRevision(int64_t most, Message* message) {
  message->set_revision(std::min(message->revision(), most));
}
void CapRevisions(int64_t most, v1::Job* job) {
  CapRevision(most, job);
}
void CapRevisions(int64_t most, v1::HostsReply* hosts) {
  CapRevision(most, hosts);
}
void CapRevisions(int64_t most, v1::ListReply* list) {
  CapRevision(most, list);
  for (v1::Job& job : *list->mutable_jobs()) CapRevision(most, &job);
}

}  // namespace

// ---- questions ----

template <typename Message>
void FleetDriver::AnswerQuestion(const Reply<Message>& reply, absl::StatusOr<Message> answer) {
  looks_.push_back([this, reply, answer = std::move(answer)](const absl::Status& end) mutable {
    if (answer.ok() && !end.ok()) return reply(end);
    if (answer.ok()) CapRevisions(durable_revision_, &*answer);
    reply(answer);
  });
}

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
  v1::Job message = JobMessage(
      book_.fleet(), job, book_.entry(job), waits == queue_.end() ? 0 : queue_places_.at(job),
      waits == queue_.end() ? "" : waits->second.reason, options_.unix_ms());
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
    AnswerQuestion(reply, answer(request.job_id()));
  });
  if (!posted) reply(Busy());
}

void FleetDriver::List(v1::ListRequest request, const Reply<v1::ListReply>& reply) {
  const bool posted = queue_of_tasks_.Post(
      [this, request = std::move(request), reply] { AnswerQuestion(reply, OnList(request)); });
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
      [this, reply, answer] { AnswerQuestion(reply, absl::StatusOr<v1::HostsReply>(answer())); });
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
