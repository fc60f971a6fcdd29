#include "worker/train/trainer.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/memory/memory.h"
#include "plan/schedule/stage_buckets.h"
#include "plan/schedule/step_schedule.h"
#include "plan/shards/buckets.h"
#include "plan/spec/checkpoint_folder.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "plan/spec/learning_rate.h"
#include "process/failpoint.h"
#include "process/version.h"
#include "worker/model/stage.h"
#include "worker/state/adafactor.h"
#include "worker/state/arena.h"
#include "worker/state/groups.h"
#include "worker/state/optimizer.h"
#include "worker/state/parameters.h"
#include "worker/state/state_swapper.h"
#include "worker/state/zero.h"
#include "worker/train/batches.h"
#include "worker/train/checkpoint_io.h"
#include "worker/train/janitor.h"
#include "worker/train/loss_scale.h"
#include "worker/train/metrics.h"
#include "worker/train/trace.h"
#include "worker/train/update_guard.h"

namespace weft {
namespace {

absl::Status CheckTrainable(const JobSpec& job, const Layout& layout) {
  RETURN_IF_ERROR(CheckModel(job.model));
  return CheckRunnable(job.model, job.cluster, job.batch(), layout);
}

// A save that has no next interval is tried again: for ten minutes at the end of training, for
// seconds on a stop.
// Wishes of all ranks are added up in one number: whole ones are for a stop, and of the smaller
// ones even 2^18 - 1 make none of the next. Sums of all three are exact in a double's 53 bits below
// 2^17 ranks.
constexpr double kStopWish = 1;
constexpr double kSaveWish = 0x1p-18;
constexpr double kAwayWish = 0x1p-36;
constexpr int kTriesAtTheEnd = 60;
constexpr std::chrono::milliseconds kPauseAtTheEnd{10000};
constexpr int kTriesToStop = 3;
constexpr std::chrono::milliseconds kPauseToStop{1000};
constexpr std::chrono::milliseconds kCleanUpPatience{30000};

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

absl::Status AtStep(int64_t step, const absl::Status& status) {
  return {status.code(), absl::StrCat("step ", step, ": ", status.message())};
}

// Returns what the rank's page says of each group of actions.
std::vector<std::string> TextsOf(const std::vector<Action>& schedule) {
  std::vector<std::string> texts;
  for (const absl::Span<const Action> group : Groups(schedule)) {
    texts.push_back(ActionText(group.front()));
  }
  return texts;
}

LossScale LossScaleOf(const JobSpec& job) {
  return job.training.mixed_precision == Precision::kFp16 ? LossScale(job.fp16) : LossScale();
}

}  // namespace

Trainer::Trainer(const Assignment& assignment, Device& device, RunHooks hooks)
    : job_(assignment.job),
      layout_(assignment.layout),
      generation_(assignment.generation),
      run_folder_(assignment.run_folder),
      checkpoint_folder_(CheckpointFolder(job_.checkpoint, run_folder_)),
      load_checkpoint_(assignment.load_checkpoint),
      run_(assignment.run),
      device_(device),
      hooks_(std::move(hooks)),
      progress_(hooks_.progress != nullptr ? *hooks_.progress : unseen_),
      guard_(std::make_unique<UpdateGuard>(job_.training.max_consecutive_skipped_steps,
                                           LossScaleOf(job_))) {}

Trainer::~Trainer() = default;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const Assignment& assignment, int rank,
                                                         Device& device, Comm& comm,
                                                         RunHooks hooks) {
  RETURN_IF_ERROR(CheckTrainable(assignment.job, assignment.layout));
  CHECK(rank == comm.rank());
  auto trainer = std::unique_ptr<Trainer>(new Trainer(assignment, device, std::move(hooks)));
  const absl::Status prepared = trainer->Prepare(rank, comm);
  if (prepared.ok()) return trainer;
  if (trainer->hooks_.failed) trainer->hooks_.failed(prepared, trainer->loading_);
  return prepared;
}

absl::Status Trainer::Prepare(int rank, Comm& comm) {
  Failpoint("rank.prepare");
  ASSIGN_OR_RETURN(
      groups_, RankGroups::Create(layout_, KvHeadCopies(job_.model, layout_), comm, &progress_));
  RETURN_IF_ERROR(groups_->ProveSums());
  progress_.SetPhase(RankPhase::kLoad);
  RETURN_IF_ERROR(OpenData());
  RETURN_IF_ERROR(Allocate(rank));
  RETURN_IF_ERROR(LoadOrInitialize());
  if (rank == 0) {
    ASSIGN_OR_RETURN(metrics_, MetricsFile::Open(absl::StrCat(run_folder_, "/metrics.jsonl"),
                                                 job_.max_metrics_bytes.value_or(0)));
    janitor_ = std::make_unique<Janitor>(checkpoint_folder_, run_.id, generation_,
                                         job_.checkpoint.keep_latest_k, hooks_.warn);
  }
  RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "prepare the first step"));
  return groups_->Check("prepare the first step");
}

absl::Status Trainer::OpenData() {
  Failpoint("rank.open_data");
  ASSIGN_OR_RETURN(Dataset train, Dataset::Open(job_, /*train=*/true));
  batches_ = std::make_unique<Batches>(std::move(train), job_, *groups_);
  if (job_.validation.interval > 0 && job_.validation.steps > 0) {
    ASSIGN_OR_RETURN(Dataset valid, Dataset::Open(job_, /*train=*/false));
    valid_batches_ = std::make_unique<Batches>(std::move(valid), job_, *groups_);
  }
  return absl::OkStatus();
}

absl::Status Trainer::Allocate(int rank) {
  Failpoint("rank.allocate");
  const Numerics numerics = job_.numerics();
  const RankMemory memory = PlanRankMemory(job_.model, job_.batch(), layout_, rank, numerics);
  planned_bytes_ = memory.total_bytes();
  ASSIGN_OR_RETURN(arena_, Arena::Create(memory, device_));
  parameters_ = std::make_unique<Parameters>(job_.model, layout_, rank, numerics, *arena_);
  const std::vector<Bucket> buckets = BucketsOf(job_.model, layout_, rank, numerics.optimizer);
  swapper_ = std::make_unique<StateSwapper>(*parameters_,
                                            StagingOf(BucketElementsOf(buckets), layout_, numerics),
                                            numerics, *arena_, device_);
  zero_ = std::make_unique<Zero>(*parameters_, device_, *groups_);
  totals_.all = arena_->Get("work/totals", kStepTotals, 1);
  totals_.loss = totals_.all.RowRange(0, 1);
  totals_.squares = totals_.all.RowRange(1, 1);
  totals_.wishes = totals_.all.RowRange(2, 1);
  totals_.scale = totals_.all.RowRange(3, 1);
  totals_.sums = totals_.all.RowRange(0, 3);
  stage_ = std::make_unique<Stage>(job_.model, job_.batch(), numerics, *parameters_, totals_.loss,
                                   *zero_, *arena_, device_, *groups_);
  stage_->SetLossTerms(job_.training.z_loss, job_.training.label_smoothing);
  if (numerics.optimizer == OptimizerStates::kFactored) {
    adafactor_ = std::make_unique<Adafactor>(job_.model, *parameters_, *arena_, device_, *groups_);
  }
  RETURN_IF_ERROR(arena_->CheckAllUsed());
  attention_ = stage_->PrepareAttention();
  const int stage = groups_->at().pp;
  schedule_ = StepSchedule(job_.model, layout_, stage);
  evaluation_ =
      EvaluationSchedule(stage, layout_.pp, static_cast<int>(layout_.gradient_accumulation_steps),
                         layout_.virtual_stages);
  texts_ = TextsOf(schedule_);
  evaluation_texts_ = TextsOf(evaluation_);
  const StageBuckets used =
      StageBucketsOf(layout_, job_.model.num_blocks, stage, job_.model.tied_embeddings);
  weights_used_ = WeightsOf(schedule_, used);
  weights_evaluated_ = WeightsOf(evaluation_, used);
  return absl::OkStatus();
}

absl::Status Trainer::LoadOrInitialize() {
  Failpoint("rank.load");
  if (!load_checkpoint_.empty()) {
    loading_ = true;
    ASSIGN_OR_RETURN(const Manifest manifest,
                     LoadCheckpoint(load_checkpoint_, *parameters_, device_));
    loading_ = false;
    RETURN_IF_ERROR(CheckFacts(manifest, RunFacts(job_, *batches_)));
    after_step_ = manifest.step;
    const bool repeats_bits =
        job_.deterministic || job_.cluster.device.backend == BackendKind::kCpu;
    if (repeats_bits && groups_->rank() == 0) {
      differences_ = OtherComputation(manifest, hooks_.computes_by);
    }
    guard_->Resume(manifest.progress);
    swapper_->RoundWeights();
    return absl::OkStatus();
  }
  if (job_.init_from.empty()) {
    const int local_ranks = std::min(layout_.world_size(), job_.cluster.slots_per_node);
    const int sharers = hooks_.cpu_sharers > 0 ? hooks_.cpu_sharers : local_ranks;
    DrawInitialWeights(job_.training.seed, sharers, *parameters_, device_);
  } else {
    // No restart would find them otherwise, and no checkpoint is to blame.
    const absl::Status loaded = LoadWeights(job_.init_from, job_.model, *parameters_, device_);
    if (!loaded.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("model.init_from: ", loaded.message()));
    }
  }
  swapper_->RoundWeights();
  return absl::OkStatus();
}

absl::StatusOr<RunResult> Trainer::Run() {
  absl::StatusOr<RunResult> result = RunSteps();
  if (!result.ok() && hooks_.failed) hooks_.failed(result.status(), /*loading=*/false);
  return result;
}

absl::StatusOr<RunResult> Trainer::RunSteps() {
  Failpoint("rank.steps");
  if (hooks_.ready) hooks_.ready(after_step_, allocated_bytes(), planned_bytes_);
  if (hooks_.begin) {
    const InCall meeting(progress_, CallKind::kMeeting, MeetingAxis::kBegin);
    RETURN_IF_ERROR(hooks_.begin());
  }
  RETURN_IF_ERROR(zero_->GatherAllParameters());
  RunResult result{.step = after_step_};
  const int64_t last_step = job_.training.steps;
  while (result.step < last_step && !result.stopped) {
    const int64_t step = result.step + 1;
    absl::StatusOr<StepReport> done = Step(step);
    if (!done.ok()) return AtStep(step, done.status());
    StepReport report = *std::move(done);
    report.stopping = report.stopping && step < last_step;
    const bool at_end = step == last_step;
    if (valid_batches_ != nullptr && (at_end || step % job_.validation.interval == 0)) {
      ASSIGN_OR_RETURN(report.valid_loss, Validate());
      RETURN_IF_ERROR(CheckFinite("validation loss", *report.valid_loss, step));
    }
    if (metrics_ != nullptr) {
      const absl::Status written = metrics_->Append(report, generation_);
      if (!written.ok()) Warn(std::string(written.message()));
      report.not_written = metrics_->trouble();
    }
    if (hooks_.step_done) hooks_.step_done(report);
    // After it is reported, before it could be saved.
    if (const absl::Status goes_on = guard_->CheckGoingOn(); !goes_on.ok()) {
      // All ranks leave here. Whoever did so first would end others before they have reported it.
      groups_->Barrier().IgnoreError();
      return goes_on;
    }
    result = {.step = step, .stopped = report.stopping};
    const int64_t interval = job_.checkpoint.interval.value_or(0);
    if (report.stopping || at_end) {
      ASSIGN_OR_RETURN(const SaveEnd end, SaveAtLast(step, report.stopping));
      if (!end.committed && at_end) {
        return absl::FailedPreconditionError(
            absl::StrCat("step ", step, ", the last one, could not be saved: ", end.reason,
                         "; cure that and run the same command again"));
      }
    } else if (put_off_ || report.saving || (interval > 0 && step % interval == 0)) {
      if (report.away && !put_off_) {
        Warn(absl::StrCat("step ", step,
                          " is not saved while the coordinator (weftd) is away; the ",
                          "first step after its return is"));
      }
      put_off_ = report.away;
      if (!put_off_) RETURN_IF_ERROR(Save(step).status());
    }
  }
  RETURN_IF_ERROR(zero_->AwaitParameters());  // still the step's, and of its budget
  progress_.SetPhase(RankPhase::kTeardown);
  RETURN_IF_ERROR(groups_->Barrier());
  if (janitor_ != nullptr) janitor_->Finish(kCleanUpPatience);
  if (metrics_ != nullptr && !metrics_->Flush().ok()) Warn("the last lines of metrics are lost");
  return result;
}

// One optimizer step, in the order of the schedule. Collective.
absl::StatusOr<StepReport> Trainer::Step(int64_t step) {
  Failpoint("step.begin");
  const Clock::time_point start = Clock::now();
  StepReport report;
  report.step = step;
  report.lr = LearningRate(job_.lr_scheduler, job_.optimizer.lr, job_.training.steps, step);
  report.tokens = job_.training.global_batch_size * job_.training.seq_len;
  loss_scale_ = guard_->loss_scale();
  stage_->ScaleLoss(loss_scale_);
  if (job_.training.mixed_precision == Precision::kFp16) report.loss_scale = loss_scale_;
  progress_.BeginStep(step);
  progress_.BeginAction(-1, "read_data");
  RETURN_IF_ERROR(batches_->Read(step));
  zero_->Begin(weights_used_);
  stage_->Begin(Pass::kTraining, batches_->tokens());
  device_.Zero(parameters_->all_gradients());
  device_.Zero(totals_.all);
  PartSeconds parts;
  std::optional<Trace> trace;
  if (job_.profiler.Traces(step)) {
    trace.emplace(step, groups_->rank(), groups_->at());
  }
  int64_t index = 0;
  for (const absl::Span<const Action> group : Groups(schedule_)) {
    const Clock::time_point begin = Clock::now();
    progress_.BeginAction(index, texts_[static_cast<size_t>(index)]);
    ++index;
    if (IsTransfer(group.front().op)) {
      RETURN_IF_ERROR(stage_->Exchange(group));
    } else if (IsPass(group.front().op)) {
      RETURN_IF_ERROR(stage_->Compute(group.front(), group.subspan(1)));
    } else {
      RETURN_IF_ERROR(Do(group.front(), report));
    }
    parts[PartOf(group.front().op)] += SecondsSince(begin);
    if (trace) trace->Add(group, begin, Clock::now());
  }
  // While the device computes what is queued.
  progress_.BeginAction(index, "read_data");
  if (step < job_.training.steps) batches_->ReadAhead(step + 1);
  progress_.BeginAction(index, "read_totals");
  RETURN_IF_ERROR(ReadTotals(report));
  progress_.EndStep();
  if (job_.cluster.device.backend == BackendKind::kCpu) report.parts = parts;
  report.step_s = SecondsSince(start);
  if (trace) {
    const absl::Status written = trace->Write({run_folder_, absl::StrCat("trace/step-", step)});
    if (!written.ok()) Warn(std::string(written.message()));
  }
  return report;
}

absl::Status Trainer::Do(const Action& action, const StepReport& report) {
  Failpoint("step.action");
  switch (action.op) {
    case Op::kReduceParts:
      return ReduceParts();
    case Op::kReduceTiedEmbedding:
      return groups_->SumOverTiedCopies(parameters_->Get(kTokenEmbeddingName).gradient);
    case Op::kReduceGradients:
      return zero_->StartReduction(action.bucket);
    case Op::kAwaitGradients:
      return zero_->AwaitReductions();
    case Op::kReduceNorm:
      return ReduceNorm(report.step);
    case Op::kUpdate:
      return Update(report);
    case Op::kGatherParameters:
      return zero_->StartGatherParameters(action.bucket);
    case Op::kForward:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kRecvActivation:
    case Op::kSendActivation:
    case Op::kRecvGradient:
    case Op::kSendGradient:
      break;  // the stage's
  }
  CHECK(false);
  return absl::OkStatus();
}

// Each of the ranks that share a kv head has seen its own query heads only; of those that have a
// norm, where tokens are cut, its own tokens.
absl::Status Trainer::ReduceParts() {
  Failpoint("step.reduce_parts");
  for (const OwnPiece& piece : parameters_->own()) {
    if (piece.shard.gradient_parts == 1) continue;
    const bool is_whole = piece.shard.tensor.sum != GradientSum::kNone;
    RETURN_IF_ERROR(is_whole ? groups_->SumOverTensor(piece.gradient)
                             : groups_->SumOverKvCopies(piece.gradient));
  }
  return absl::OkStatus();
}

// Loss, squared norm and wishes in one reduction, so that all ranks know the same; what comes of
// them for the update stays on the device, which nobody waits for before the update is queued. Of
// the ranks that hold the same number, one contributes it.
absl::Status Trainer::ReduceNorm(int64_t step) {
  Failpoint("step.reduce_norm");
  if (!groups_->is_last_stage() || groups_->at().tp != 0) device_.Zero(totals_.loss);
  if (groups_->replica_index() == 0) {
    AddPrimaryGradientSquares(parameters_->own(), totals_.squares, device_);
  }
  const double wish = (hooks_.stop_requested && hooks_.stop_requested() ? kStopWish : 0) +
                      (hooks_.save_requested && hooks_.save_requested() ? kSaveWish : 0) +
                      (hooks_.coordinator_is_away && hooks_.coordinator_is_away() ? kAwayWish : 0);
  if (wish > 0) device_.CopyIn(totals_.wishes, &wish);
  if (step != hooks_.skips_reduction_in_step) {
    RETURN_IF_ERROR(groups_->SumOverWorld(totals_.sums));
  }
  device_.GradientScale({.max_norm = job_.training.gradient_clipping, .loss_scale = loss_scale_},
                        totals_.loss, totals_.squares, totals_.scale);
  return absl::OkStatus();
}

// The moments' bias correction counts updates, of which a skipped step is none. Whether this one is
// skipped shows on the device alone as yet: then nothing changes.
absl::Status Trainer::Update(const StepReport& report) {
  Failpoint("step.update");
  const int64_t update = report.step - guard_->progress().skipped_steps;
  if (adafactor_ != nullptr) {
    return adafactor_->Update(job_.optimizer, report.lr, totals_.scale, update);
  }
  swapper_->ForEachStretch([&](absl::Span<const OwnPiece> own) {
    UpdateParameters(job_.optimizer, report.lr, totals_.scale, update, own, device_);
  });
  return absl::OkStatus();
}

// The one time in a step that the host waits for the device. The verdict is Device::GradientScale's
// and the guard's, each by its own sums: they must agree, or a rank would go on without its update.
absl::Status Trainer::ReadTotals(StepReport& report) {
  Failpoint("step.totals");
  double totals[kStepTotals] = {};
  device_.CopyOut(totals, totals_.all);
  {
    const InCall wait(progress_, CallKind::kDevice, MeetingAxis::kWorld);
    RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "compute"));
  }
  RETURN_IF_ERROR(groups_->Check("compute"));
  const auto [loss, squares, wishes, scale] = totals;
  report.loss = loss / static_cast<double>(report.tokens);
  report.grad_norm = std::sqrt(squares) / loss_scale_;
  report.stopping = wishes >= kStopWish;
  const double smaller = (wishes - std::floor(wishes)) / kSaveWish;
  report.saving = smaller >= 1;
  report.away = smaller > std::floor(smaller);
  // All ranks have the same two numbers, so all come to the same verdict, as their devices have.
  report.skipped = !guard_->Admit(report.step, report.loss, report.grad_norm);
  report.skipped_steps = guard_->progress().skipped_steps;
  if (report.skipped == std::isnan(scale)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("loss ", report.loss, " and gradient norm ",
                                          report.grad_norm, ": the device has scaled gradients by ",
                                          scale, ", which is not what follows from them"));
}

// Mean loss over the first validation.steps global batches of held-out samples, which add up by
// batches, as weft eval does.
absl::StatusOr<double> Trainer::Validate() {
  double loss_sum = 0;
  progress_.SetPhase(RankPhase::kEval);
  for (int64_t batch = 1; batch <= job_.validation.steps; ++batch) {
    RETURN_IF_ERROR(valid_batches_->Read(batch));
    zero_->Begin(weights_evaluated_);
    stage_->Begin(Pass::kEvaluation, valid_batches_->tokens());
    device_.Zero(totals_.loss);
    int64_t index = 0;
    for (const absl::Span<const Action> group : Groups(evaluation_)) {
      progress_.BeginAction(index, evaluation_texts_[static_cast<size_t>(index)]);
      ++index;
      if (IsTransfer(group.front().op)) {
        RETURN_IF_ERROR(stage_->Exchange(group));
      } else {
        RETURN_IF_ERROR(stage_->Compute(group.front()));
      }
    }
    double loss = 0;
    device_.CopyOut(&loss, totals_.loss);
    loss_sum += loss;
  }
  RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "validate"));
  if (!groups_->is_last_stage() || groups_->at().tp != 0) loss_sum = 0;
  device_.CopyIn(totals_.loss, &loss_sum);
  RETURN_IF_ERROR(groups_->SumOverWorld(totals_.loss));
  device_.CopyOut(&loss_sum, totals_.loss);
  RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "validate"));
  RETURN_IF_ERROR(groups_->Check("validate"));
  const int64_t tokens = job_.training.global_batch_size * job_.training.seq_len;
  return loss_sum / static_cast<double>(job_.validation.steps * tokens);
}

// Ranks meet at its end. What fails here is the disk, or nothing: a rank that could not write says
// so, all learn of it, and training goes on; what was staged goes, so that there is room.
absl::StatusOr<SaveEnd> Trainer::Save(int64_t step) {
  Failpoint("save.begin");
  RETURN_IF_ERROR(groups_->Check("save"));
  RETURN_IF_ERROR(zero_->AwaitParameters());  // still the step's, and of its budget
  progress_.SetPhase(RankPhase::kSave);
  const SaveId save{.number = ++saves_, .step = step};
  ASSIGN_OR_RETURN(
      const OwnShard own,
      OwnShard::Copy({groups_->replica_index(), groups_->replicas()}, *parameters_, device_));
  Failpoint("save.copied");
  const std::string stage_folder = StageFolder(checkpoint_folder_, run_.id, generation_, step);
  const absl::StatusOr<ShardRecord> shard = own.Write(stage_folder, groups_->rank(), run_folder_);
  Failpoint("save.shard_written");
  std::vector<ShardRecord> shards;
  if (hooks_.exchange_shards) {
    const InCall meeting(progress_, CallKind::kMeeting, MeetingAxis::kSaveDone);
    ASSIGN_OR_RETURN(shards, hooks_.exchange_shards(save, shard));
  } else {
    CHECK(layout_.world_size() == 1);
    if (shard.ok()) shards = {*shard};
  }
  SaveEnd end{.committed = !shards.empty(), .reason = std::string(shard.status().message())};
  if (!shards.empty()) {
    Failpoint("save.commit");
    const absl::StatusOr<std::string> folder = Commit(step, std::move(shards));
    Failpoint("save.committed");
    if (hooks_.committed) hooks_.committed(save, folder);
    end = {folder.ok(), std::string(folder.status().message())};
  }
  Failpoint("save.reported");
  if (hooks_.save_over) {
    const InCall meeting(progress_, CallKind::kMeeting, MeetingAxis::kSaveOver);
    ASSIGN_OR_RETURN(end, hooks_.save_over(save));
  }
  if (!end.committed) {
    RemoveShard(stage_folder, groups_->rank(), run_folder_);
    // All ranks are through with the one before.
    if (janitor_ != nullptr && unsaved_step_ > 0 && unsaved_step_ != step) {
      janitor_->CleanUpAfter(unsaved_step_);
    }
    unsaved_step_ = step;
    Warn(absl::StrCat("step ", step, " is not saved: ", end.reason));
  } else if (janitor_ != nullptr) {
    Failpoint("save.clean_up");
    janitor_->CleanUpAfter(step);
  }
  return end;
}

// There is no next interval, and all the work since the last save is at stake: it is worth waiting
// until there is room. A stop is in a hurry. All ranks know the same ends, so try alike.
absl::StatusOr<SaveEnd> Trainer::SaveAtLast(int64_t step, bool stopping) {
  const int tries = stopping ? kTriesToStop : kTriesAtTheEnd;
  const std::chrono::milliseconds pause = stopping ? kPauseToStop : kPauseAtTheEnd;
  ASSIGN_OR_RETURN(SaveEnd end, Save(step));
  for (int i = 1; i < tries && !end.committed; ++i) {
    if (hooks_.rest) {
      hooks_.rest(pause);
    } else {
      std::this_thread::sleep_for(pause);
    }
    ASSIGN_OR_RETURN(end, Save(step));
  }
  return end;
}

absl::StatusOr<std::string> Trainer::Commit(int64_t step, std::vector<ShardRecord> shards) {
  const std::string folder = checkpoint_folder_;
  Manifest manifest;
  manifest.run_id = run_.id;
  manifest.run_folder = run_folder_;
  manifest.step = step;
  manifest.generation = generation_;
  manifest.next_sample = step * job_.training.global_batch_size;
  manifest.progress = guard_->progress();
  manifest.weft_version = Version();
  manifest.layout = LayoutText(layout_);
  manifest.model = job_.model;
  manifest.facts = RunFacts(job_, *batches_);
  manifest.facts.merge(ReaderFacts(job_, layout_, valid_batches_.get()));
  manifest.facts.merge(ComputationFacts(hooks_.computes_by));
  manifest.facts.merge(MathematicsFacts(run_));
  manifest.shards = std::move(shards);
  RETURN_IF_ERROR(CommitCheckpoint(folder, manifest));
  return StepFolder(folder, step);
}

void Trainer::Warn(const std::string& text) const {
  if (hooks_.warn) hooks_.warn(text);
}

void Trainer::ForEachShard(const std::function<void(const TensorShard& shard, ShardKind kind,
                                                    absl::Span<const float> values)>& visit) const {
  std::vector<float> values;
  for (const OwnPiece& piece : parameters_->own()) {
    values.resize(static_cast<size_t>(piece.range.size()));
    for (const ShardKind kind : {ShardKind::kWeight, ShardKind::kGradient}) {
      device_.CopyOut(values.data(), kind == ShardKind::kWeight ? piece.master : piece.gradient);
      if (kind == ShardKind::kGradient) {
        for (float& value : values) value = static_cast<float>(value / loss_scale_);
      }
      absl::Span<const float> rest = values;
      for (const TensorShard& box : BoxesOf(piece.shard, piece.range)) {
        const auto count = static_cast<size_t>(box.elements());
        visit(box, kind, rest.first(count));
        rest.remove_prefix(count);
      }
    }
  }
}

int64_t Trainer::allocated_bytes() const {
  return arena_->bytes();
}

int64_t Trainer::host_bytes() const {
  return arena_->host_bytes();
}

}  // namespace weft
