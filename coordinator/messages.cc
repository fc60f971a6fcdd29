#include "coordinator/messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/preflight_messages.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {

proto::Order TrainOrder(const Job& job) {
  proto::Order order;
  order.set_generation(job.generation.number);
  proto::Train& train = *order.mutable_train();
  train.set_job(JobText(job.spec));
  *train.mutable_layout() = ToProto(*job.layout);
  train.set_run_folder(job.run_folder);
  train.set_load_checkpoint(job.newest().folder);
  *train.mutable_run() = ToProto(job.run);
  return order;
}

proto::Order BeginOrder(const Job& job) {
  proto::Order order;
  order.set_generation(job.generation.number);
  order.mutable_begin();
  return order;
}

proto::Order StopOrder(const Job& job) {
  proto::Order order;
  order.set_generation(job.generation.number);
  order.mutable_stop();
  return order;
}

proto::Order SaveNowOrder(const Job& job) {
  proto::Order order;
  order.set_generation(job.generation.number);
  order.mutable_save_now()->set_number(job.save_wishes);
  return order;
}

proto::Order CommitOrder(const Job& job) {
  proto::Order order;
  order.set_generation(job.generation.number);
  const PendingSave& saving = *job.generation.saving;
  order.mutable_commit()->set_step(saving.step);
  order.mutable_commit()->set_number(saving.number);
  for (const auto& [rank, shard] : saving.shards) {
    proto::ShardWritten& message = *order.mutable_commit()->add_shards();
    message.set_step(saving.step);
    message.set_file(shard.file);
    message.set_bytes(shard.bytes);
    message.set_xxh3(shard.xxh3);
  }
  return order;
}

proto::Order SaveOverOrder(const Job& job) {
  proto::Order order;
  order.set_generation(job.generation.number);
  const EndedSave& save = job.generation.ended_save;
  proto::SaveOver& message = *order.mutable_save_over();
  message.set_step(save.step);
  message.set_number(save.number);
  message.set_committed(save.committed);
  message.set_reason(save.reason);
  return order;
}

proto::Order AbortOrder(int64_t generation, const std::string& reason) {
  proto::Order order;
  order.set_generation(generation);
  order.mutable_abort()->set_reason(reason);
  return order;
}

proto::Order NotesOrder(int64_t generation, const proto::Notes& notes) {
  proto::Order order;
  order.set_generation(generation);
  *order.mutable_notes() = notes;
  return order;
}

proto::AgentOrder LaunchOrder(const Job& job) {
  proto::AgentOrder order;
  proto::Launch& launch = *order.mutable_launch();
  launch.set_generation(job.generation.number);
  launch.set_world_size(job.world_size());
  launch.set_job(JobText(job.spec));
  launch.set_after_step(job.newest().step);
  launch.set_run_folder(job.run_folder);
  for (const HostShare& share : job.generation.shares) *launch.add_hosts() = Write(share);
  return order;
}

proto::AgentOrder LaunchOrderFor(const HostShare& share, const HostShare& first,
                                 const proto::AgentOrder& whole) {
  if (share.machine == first.machine) return whole;
  proto::AgentOrder order;
  const proto::Launch& all = whole.launch();
  proto::Launch& launch = *order.mutable_launch();
  launch.set_generation(all.generation());
  launch.set_world_size(all.world_size());
  launch.set_job(all.job());
  launch.set_after_step(all.after_step());
  launch.set_run_folder(all.run_folder());
  *launch.add_hosts() = Write(first);
  *launch.add_hosts() = Write(share);
  return order;
}

proto::AgentOrder StopGroupOrder(const StopWorkers& stop) {
  proto::AgentOrder order;
  order.mutable_stop_group()->set_generation(stop.generation);
  order.mutable_stop_group()->set_reason(stop.reason);
  return order;
}

proto::AgentOrder LeaseOrder(int64_t sent_boot_ms, int64_t lease_ms) {
  proto::AgentOrder order;
  order.mutable_lease()->set_sent_boot_ms(sent_boot_ms);
  order.mutable_lease()->set_lease_ms(lease_ms);
  return order;
}

proto::AgentOrder HangUpOrder(int64_t stream, const absl::Status& why) {
  proto::AgentOrder order;
  order.mutable_hang_up()->set_stream(stream);
  order.mutable_hang_up()->set_code(static_cast<int32_t>(why.code()));
  order.mutable_hang_up()->set_message(absl::StrCat(why.message()));
  return order;
}

proto::JobStatus StatusOf(const Job& job, const StepsSoFar& progress) {
  proto::JobStatus status;
  status.set_job_id(job.id);
  status.set_phase(absl::StrCat(PhaseName(job.phase)));
  status.set_generation(job.generation.number);
  status.set_step(std::max(progress.step, job.newest().step));
  status.set_steps(job.spec.training.steps);
  status.set_saved_step(job.newest().step);
  status.set_restarts_left(std::max(0, job.restarts_left));
  status.set_reason(job.reason);
  if (job.layout) *status.mutable_layout() = ToProto(*job.layout);
  status.set_revision(job.revision);
  status.set_planned_bytes(job.planned_bytes);
  status.set_peak_bytes(progress.peak_bytes);
  status.set_predicted_step_s(job.predicted_step_s);
  for (auto saved = job.saved.rbegin(); saved != job.saved.rend(); ++saved) {
    proto::OlderCheckpoint& message = *status.add_saved();
    message.set_step(saved->step);
    message.set_folder(saved->folder);
  }
  return status;
}

Watched WatchedPart(const Job& job) {
  return {job.id,
          job.phase,
          job.reason,
          job.last_failure,
          job.generation.number,
          job.generation.ended_save.number};
}

namespace {

// Says what became of the generation, in a few words.
std::string DoneText(const Job& job) {
  const std::string ended = absl::StrCat("ended generation ", job.last_failure->generation);
  if (job.phase == Phase::kFailed) return absl::StrCat(ended, "; the job has failed");
  if (job.phase != Phase::kRecovering) return ended;
  return absl::StrCat(ended, "; the next one goes on after step ", job.newest().step);
}

proto::RankLost LostMessage(const Job& job) {
  const GenerationCause& cause = job.last_failure->cause;
  proto::RankLost lost;
  lost.set_rank(cause.rank);
  lost.set_host(cause.host);
  lost.set_reason(cause.detail.empty() ? cause.text : absl::StrCat(cause.text, "\n", cause.detail));
  lost.set_phase(cause.hang.phase);
  lost.set_step(cause.hang.step);
  lost.set_collective(cause.hang.collective);
  lost.set_why(cause.hang.why);
  lost.set_waiting(cause.hang.waiting);
  lost.set_age_ms(cause.hang.age_ms);
  for (const std::string& file : cause.hang.stacks) lost.add_stacks(file);
  lost.set_did(DoneText(job));
  return lost;
}

proto::SlowRank SlowMessage(const RankSlow& fact) {
  proto::SlowRank slow;
  slow.set_rank(fact.rank);
  slow.set_host(fact.host);
  slow.set_share(fact.share_percent / 100.0);
  slow.set_times(fact.times_tenths / 10.0);
  slow.set_since_step(fact.since_step);
  return slow;
}

}  // namespace

std::vector<proto::JobEvent> EventsOf(const Watched& before, const Job& after,
                                      const StoredEvent& stored) {
  std::vector<proto::JobEvent> events;
  const auto add = [&]() -> proto::JobEvent& {
    proto::JobEvent& event = events.emplace_back();
    event.set_revision(stored.revision);
    event.set_generation(after.generation.number);
    event.set_unix_ms(stored.unix_ms);
    return event;
  };
  if (after.last_failure && after.last_failure != before.failure) {
    proto::JobEvent& event = add();
    event.set_generation(after.last_failure->generation);
    *event.mutable_lost() = LostMessage(after);
  }
  if (const auto* committed = std::get_if<Committed>(&stored.event)) {
    proto::Committed& message = *add().mutable_committed();
    message.set_step(committed->step);
    message.set_folder(committed->folder);
    message.set_bytes(committed->bytes);
  }
  if (const auto* checked = std::get_if<HostChecked>(&stored.event)) {
    for (const proto::HostChecked& each : CheckedEvents(*checked, after)) {
      *add().mutable_host_checked() = each;
    }
  }
  if (const auto* slow = std::get_if<RankSlow>(&stored.event)) {
    *add().mutable_rank_slow() = SlowMessage(*slow);
  }
  const EndedSave& save = after.generation.ended_save;
  const bool is_new = after.generation.number == before.generation && save.number > before.save;
  if (is_new && !save.committed) {
    proto::NotSaved& message = *add().mutable_not_saved();
    message.set_step(save.step);
    message.set_rank(save.rank);
    message.set_reason(save.reason);
    message.set_saved_step(after.newest().step);
  }
  if (after.id != before.job_id || after.phase != before.phase || after.reason != before.reason) {
    proto::PhaseChanged& phase = *add().mutable_phase();
    phase.set_phase(absl::StrCat(PhaseName(after.phase)));
    phase.set_reason(after.reason);
  }
  return events;
}

}  // namespace weft
