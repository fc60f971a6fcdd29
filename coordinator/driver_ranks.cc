// The driver's part that has to do with ranks: their streams, which lie in those of their agents,
// what they report, the orders to them.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/driver.h"
#include "coordinator/fact_check.h"
#include "coordinator/record.h"
#include "process/failpoint.h"
#include "process/log.h"

namespace weft {

// ---- duties ----

void Driver::Do(const StartTraining& start) {
  Failpoint("driver.start_training");
  OrderOnce(told_train_, start.generation, 0, [&] { return TrainOrder(job_); });
}

void Driver::Do(const BeginSteps& begin) {
  Failpoint("driver.begin_steps");
  OrderOnce(told_begin_, begin.generation, 0, [&] { return BeginOrder(job_); });
}

// Rank 0 speaks for all: what it knows at a step's end, the others learn from it.
void Driver::Do(const SaveSteps& save) {
  const auto id = stream_of_rank_.find(0);
  const auto found = id == stream_of_rank_.end() ? streams_.end() : streams_.find(id->second);
  if (found == streams_.end() || found->second.generation != save.generation) return;
  if (std::exchange(found->second.told_save, save.number) == save.number) return;
  Tell(found->second, SaveNowOrder(job_).SerializeAsString());
}

void Driver::Do(const StopTraining& stop) {
  OrderOnce(told_stop_, stop.generation, 0, [&] { return StopOrder(job_); });
}

void Driver::Do(const GrantCommit& grant) {
  Failpoint("driver.grant_commit");
  const auto id = stream_of_rank_.find(0);
  if (id == stream_of_rank_.end()) return;  // it is told when it comes back
  const auto found = streams_.find(id->second);
  if (found == streams_.end() || found->second.generation != job_.generation.number) return;
  Stream& stream = found->second;
  if (stream.told_commit == grant.number) return;
  const bool is_durable = IsDurable();
  if (broken_) return;
  if (!is_durable) {  // it is tried again at the next interval
    return Happened(
        SaveFailed{grant.generation, 0, grant.step, grant.number,
                   absl::StrCat("it cannot be granted: ", journal_.behind().message())});
  }
  stream.told_commit = grant.number;
  Tell(stream, CommitOrder(job_).SerializeAsString());
}

void Driver::Do(const EndSave& over) {
  Failpoint("driver.end_save");
  OrderOnce(told_save_over_, over.generation, over.number, [&] { return SaveOverOrder(job_); });
}

void Driver::Do(const AbortWorkers& abort) {
  OrderOnce(told_abort_, abort.generation, 0,
            [&] { return AbortOrder(abort.generation, abort.reason); });
}

void Driver::OrderOnce(Told& told, int64_t generation, int64_t number,
                       const std::function<proto::Order()>& order) {
  if (told.generation != generation || told.number != number) told = {generation, number, 0};
  if (generation != job_.generation.number || told.streams >= arrivals_.size()) return;
  const std::string words = order().SerializeAsString();
  for (; told.streams < arrivals_.size(); ++told.streams) {
    const auto stream = streams_.find(arrivals_[told.streams]);
    if (stream != streams_.end()) Tell(stream->second, words);
  }
}

void Driver::Tell(const Stream& stream, const std::string& order) {
  const auto agent = agents_.find(stream.port.agent);
  if (agent != agents_.end()) outgoing_.ToRank(agent->second.port, stream.port.stream, order);
}

void Driver::HangUp(const Stream& stream, const absl::Status& why) {
  const auto agent = agents_.find(stream.port.agent);
  if (agent == agents_.end()) return;
  outgoing_.ToAgent(agent->second.port, HangUpOrder(stream.port.stream, why));
}

void Driver::PassNotesOn() {
  if (!std::exchange(notes_are_due_, false)) return;
  for (const int64_t id : arrivals_) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) continue;
    Stream& stream = found->second;
    for (;;) {
      const proto::Notes notes = notes_.For(stream.rank, stream.told_notes);
      if (notes.notes().empty()) break;
      stream.told_notes += static_cast<size_t>(notes.notes_size());
      Tell(stream, NotesOrder(stream.generation, notes).SerializeAsString());
    }
  }
}

// A report that is not journaled is not acknowledged.
void Driver::AcknowledgeLater(int64_t id, Stream& stream) {
  if (!std::exchange(stream.is_due, true)) due_streams_.push_back(id);
}

void Driver::AcknowledgeDue() {
  const bool durable = journal_.behind().ok();
  for (const int64_t id : std::exchange(due_streams_, {})) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) continue;
    Stream& stream = found->second;
    if (durable) stream.acknowledged = stream.sequence;
    if (!durable) due_streams_.push_back(id);
    stream.is_due = !durable;
    const auto agent = agents_.find(stream.port.agent);
    if (agent == agents_.end() || (!durable && stream.is_welcome)) continue;
    proto::Order order;
    order.set_generation(stream.generation);
    order.set_acknowledged(stream.acknowledged);
    if (!std::exchange(stream.is_welcome, true)) order.mutable_welcome();
    outgoing_.AcknowledgeToRank(agent->second.port, stream.port.stream, order.SerializeAsString());
  }
  if (!durable) return;
  for (const int64_t id : std::exchange(due_agents_, {})) {
    const auto agent = agents_.find(id);
    if (agent == agents_.end()) continue;
    agent->second.is_due = false;
    outgoing_.AcknowledgeToAgent(agent->second.port, agent->second.sequence);
  }
}

// ---- messages: from any thread ----

bool Driver::Attach(int64_t id, RankPort port) {
  return Post([this, id, port] { streams_[id].port = port; });
}

bool Driver::Report(int64_t id, proto::WorkerReport report) {
  const auto bytes = static_cast<int64_t>(report.ByteSizeLong());
  return Post([this, id, report = std::move(report)] { OnReport(id, report); }, bytes);
}

void Driver::Detach(int64_t id) {
  Post([this, id] { OnDetach(id); }, 0, Room::kAlways);
}

// ---- messages: on the driver's thread ----

void Driver::Refuse(int64_t id, const absl::Status& why) {
  const auto stream = streams_.find(id);
  LogWarning(absl::StrCat("a worker is turned away: ", why.message()));
  HangUp(stream->second, why);
  streams_.erase(stream);
}

void Driver::OnReport(int64_t id, const proto::WorkerReport& report) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;  // turned away, but it had more to say
  Stream& stream = found->second;
  if (report.has_register_()) {
    OnRegister(id, stream, report);
    return;
  }
  if (stream.rank != report.rank() || stream.generation != report.generation()) {
    Refuse(id, absl::InvalidArgumentError(absl::StrCat(
                   "the stream of rank ", stream.rank, ", generation ", stream.generation,
                   " carries a report of rank ", report.rank(), ", generation ",
                   report.generation(), "; register first, one rank per stream")));
    return;
  }
  if (stream.generation != job_.generation.number) {
    Refuse(id, absl::AbortedError(absl::StrCat("generation ", stream.generation,
                                               " is over; the current one is ",
                                               job_.generation.number)));
    return;
  }
  clocks_.heard_ms[stream.rank] = Now();
  if (report.has_note()) return OnNote(id, report);
  const std::optional<Event> fact = FactOf(report);
  const absl::Status possible = fact ? CheckFact(job_, *fact) : absl::OkStatus();
  if (!possible.ok()) return Refuse(id, possible);
  if (fact) Happened(*fact);
  if (broken_) return;
  stream.sequence = std::max(stream.sequence, report.sequence());
  if (report.has_step()) {  // acknowledged with the agent's next heartbeat
    OnStep(report);
    return;
  }
  AcknowledgeLater(id, stream);
}

void Driver::OnRegister(int64_t id, Stream& stream, const proto::WorkerReport& report) {
  const Registered worker = RegistrationOf(report);
  const auto agent = agents_.find(stream.port.agent);
  if (agent != agents_.end() && worker.version != agent->second.version) {
    return Refuse(id, absl::FailedPreconditionError(absl::StrCat(
                          "rank ", worker.rank, " is weft ", worker.version, ", its agent is weft ",
                          agent->second.version, "; install both from one build")));
  }
  const absl::Status welcome = CheckRegistration(job_, worker);
  if (!welcome.ok()) return Refuse(id, welcome);
  const std::string machine = agent == agents_.end() ? "" : agent->second.machine;
  const absl::Status placed = CheckPlaced(job_, worker.rank, machine);
  if (!placed.ok()) return Refuse(id, placed);
  const auto former = stream_of_rank_.find(worker.rank);
  if (former != stream_of_rank_.end() && former->second != id) {
    const auto old = streams_.find(former->second);  // it redialed before the old stream's end
    if (old != streams_.end() && old->second.generation == worker.generation) {
      HangUp(old->second, absl::AbortedError("the worker has opened a newer stream"));
      streams_.erase(old);
    }
  }
  const bool is_new = stream.rank != worker.rank || stream.generation != worker.generation;
  stream.rank = worker.rank;
  stream.generation = worker.generation;
  stream_of_rank_[worker.rank] = id;
  if (is_new) arrivals_.push_back(id);
  notes_are_due_ = true;
  Happened(worker);
  if (broken_) return;
  clocks_.heard_ms[worker.rank] = Now();
  stream.sequence = report.sequence();
  stream.is_welcome = false;
  AcknowledgeLater(id, stream);
}

void Driver::OnNote(int64_t id, const proto::WorkerReport& report) {
  const absl::Status kept = notes_.Put(report.note(), report.rank(), job_.world_size());
  if (!kept.ok()) Refuse(id, kept);
  notes_are_due_ = true;
}

void Driver::OnStep(const proto::WorkerReport& report) {
  Failpoint("driver.step");
  progress_.peak_bytes = std::max(progress_.peak_bytes, report.step().peak_bytes());
  if (report.rank() != 0) return;
  progress_.step = report.step().step();
  hangs_.StepDone(Now());
  proto::JobEvent event;
  event.set_revision(job_.revision);
  event.set_generation(report.generation());
  event.set_unix_ms(options_.unix_ms());
  *event.mutable_step() = report.step();
  event.mutable_step()->set_peak_bytes(progress_.peak_bytes);
  ToWatchers({event});
  last_step_ = std::move(event);
}

void Driver::OnDetach(int64_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const Stream stream = found->second;
  streams_.erase(found);
  if (stream.rank < 0) return;
  const auto current = stream_of_rank_.find(stream.rank);
  if (current == stream_of_rank_.end() || current->second != id) return;
  stream_of_rank_.erase(current);
  Happened(Suspected{stream.generation, stream.rank, "its stream broke"});
}

}  // namespace weft
