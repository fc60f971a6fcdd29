// weft's half of torch_compare.py: random weights as a checkpoint and as a Hugging Face directory,
// and what weft makes of them. Usage: weft_torch_side FAMILY FOLDER. Leaves in FOLDER
//   checkpoint/step-0    every tensor random: no norm is one, no bias is zero
//   hf/                  the same, exported
//   tokens.i32           ids, then targets of each of 10 steps, [10, 2, G, T]
//   logits.f32           of the first step's ids, read token by token, [G, T, V]
//   gradients.safetensors  of step 1, before clipping, by weft's names
//   job.json             optimizer, learning rate of each step, sizes
//   metrics.jsonl        of the 10 steps that begin at the checkpoint
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights_reader.h"
#include "nlohmann/json.hpp"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "tests/parity/parity_job.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/model/inference.h"
#include "worker/state/initial_weights.h"
#include "worker/train/batches.h"
#include "worker/train/checkpoint_io.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

constexpr int64_t kSteps = 10;

// Terms beside cross-entropy: "gemma2_with_terms".
constexpr absl::string_view kWithTerms = "_with_terms";

absl::StatusOr<JobSpec> JobOf(absl::string_view family) {
  const bool has_terms = absl::ConsumeSuffix(&family, kWithTerms);
  for (const std::string& each : EnglishFamilies()) {
    if (family != each) continue;
    JobSpec job = EnglishJobOf(each);
    job.training.steps = kSteps;
    job.training.z_loss = has_terms ? 0.01 : 0;
    job.training.label_smoothing = has_terms ? 0.1 : 0;
    return job;
  }
  return absl::InvalidArgumentError(absl::StrCat("no family ", family));
}

// Values of which a wrong place would show: every tensor normal, norms around 1.
std::vector<float> RandomValues(TensorSpec tensor) {
  const bool is_one = tensor.initial == InitialValue::kOne;
  tensor.initial = InitialValue::kNormal;
  tensor.initial_std = 0.1;
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  TensorShard whole;
  whole.begin.assign(tensor.dims.size(), 0);
  whole.end = tensor.dims;
  whole.tensor = std::move(tensor);
  FillInitialValues(whole, /*seed=*/20261121, 1, absl::MakeSpan(values));
  for (float& value : values) value += is_one ? 1.0F : 0.0F;
  return values;
}

absl::Status SaveRandom(const JobSpec& job, const Batches& batches, const std::string& folder) {
  std::vector<std::vector<float>> values;
  const std::vector<TensorSpec> tensors = Tensors(job.model);
  for (const TensorSpec& tensor : tensors) values.push_back(RandomValues(tensor));
  std::vector<BoxToSave> boxes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<int64_t> begin(tensors[i].dims.size(), 0);
    boxes.push_back({tensors[i].name, tensors[i].dims, begin, tensors[i].dims, values[i]});
  }
  std::vector<std::vector<float>> zeros;  // the optimizer has not begun
  for (const TensorSpec& tensor : tensors) {
    zeros.emplace_back(static_cast<size_t>(tensor.elements()), 0.0F);
  }
  for (const StateArray& state : StateArrays(job.numerics().optimizer)) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      boxes.push_back(boxes[i]);
      boxes.back().name = absl::StrCat("optimizer.", state.name, ".", tensors[i].name);
      boxes.back().values = zeros[i];
    }
  }
  Manifest manifest;
  manifest.model = job.model;
  manifest.generation = 1;
  manifest.facts = RunFacts(job, batches);
  ASSIGN_OR_RETURN(const ShardRecord shard, WriteShard(StageFolder(folder, "", 1, 0), 0, boxes));
  manifest.shards = {shard};
  return CommitCheckpoint(folder, manifest);
}

void WriteBytes(const std::string& path, const void* data, size_t bytes) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

// Logits of each sequence of `ids` [G, T], by a cache: [G, T, V].
absl::Status SaveLogits(const JobSpec& job, const WeightsReader& reader,
                        absl::Span<const int32_t> ids, const std::string& path, Device& device) {
  const int64_t length = job.training.seq_len;
  std::vector<float> all;
  for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(length)) {
    ASSIGN_OR_RETURN(
        const auto inference,
        Inference::Create(job.model, {.seq_len = 1, .cached_positions = length}, {}, device));
    RETURN_IF_ERROR(inference->Load(reader, {}));
    for (size_t t = first; t < first + static_cast<size_t>(length); ++t) {
      ASSIGN_OR_RETURN(const auto logits, inference->Append(ids.subspan(t, 1)));
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  WriteBytes(path, all.data(), all.size() * sizeof(float));
  return absl::OkStatus();
}

absl::Status SaveGradients(const Trainer& trainer, const std::string& path) {
  std::vector<std::vector<float>> values;
  std::vector<TensorSpec> specs;
  trainer.ForEachShard([&](const TensorShard& shard, ShardKind kind, absl::Span<const float> all) {
    if (kind != ShardKind::kGradient) return;
    specs.push_back(shard.tensor);
    values.emplace_back(all.begin(), all.end());
  });
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < specs.size(); ++i) {
    tensors.push_back({specs[i].name, specs[i].dims, values[i]});
  }
  return WriteSafetensors(path, tensors, {}).status();
}

absl::Status Train(const JobSpec& job, const Layout& layout, const std::string& folder,
                   Device& device, Comm& comm) {
  const Trainer* at_work = nullptr;
  absl::Status saved;
  std::vector<double> rates;
  RunHooks hooks;
  hooks.step_done = [&](const StepReport& report) {
    rates.push_back(report.lr);
    if (report.step == 1) saved = SaveGradients(*at_work, folder + "/gradients.safetensors");
  };
  const Assignment assignment{.job = job,
                              .layout = layout,
                              .run_folder = folder,
                              .load_checkpoint = folder + "/checkpoint/step-0"};
  ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                   Trainer::Create(assignment, 0, device, comm, std::move(hooks)));
  at_work = trainer.get();
  RETURN_IF_ERROR(trainer->Run().status());
  const nlohmann::json facts = {{"steps", kSteps},
                                {"global_batch_size", job.training.global_batch_size},
                                {"seq_len", job.training.seq_len},
                                {"vocab_size", job.model.vocab_size},
                                {"learning_rates", rates},
                                {"betas", {job.optimizer.beta1, job.optimizer.beta2}},
                                {"eps", job.optimizer.eps},
                                {"weight_decay", job.optimizer.weight_decay},
                                {"gradient_clipping", job.training.gradient_clipping},
                                {"z_loss", job.training.z_loss},
                                {"label_smoothing", job.training.label_smoothing}};
  std::ofstream(folder + "/job.json") << facts.dump(1) << "\n";
  return saved;
}

absl::Status Run(const std::string& family, const std::string& folder) {
  ASSIGN_OR_RETURN(const JobSpec job, JobOf(family));
  const Layout layout = Fitted(job, {.micro_batch_size = 4});
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const std::vector<std::unique_ptr<Comm>> comms = MakeThreadComms(1);
  ASSIGN_OR_RETURN(const auto groups, RankGroups::Create(layout, 1, *comms[0]));
  ASSIGN_OR_RETURN(Dataset data, Dataset::Open(job, /*train=*/true));
  Batches batches(std::move(data), job, *groups);
  RETURN_IF_ERROR(SaveRandom(job, batches, folder + "/checkpoint"));

  const std::string step_folder = folder + "/checkpoint/step-0";
  ASSIGN_OR_RETURN(const Manifest manifest, VerifyCheckpoint(step_folder));
  ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(step_folder, manifest));
  RETURN_IF_ERROR(ExportHuggingFace(reader, job.model, folder + "/hf"));
  std::vector<int32_t> tokens;
  for (int64_t step = 1; step <= kSteps; ++step) {
    RETURN_IF_ERROR(batches.Read(step));
    tokens.insert(tokens.end(), batches.tokens().ids.begin(), batches.tokens().ids.end());
    tokens.insert(tokens.end(), batches.tokens().targets.begin(), batches.tokens().targets.end());
  }
  WriteBytes(folder + "/tokens.i32", tokens.data(), tokens.size() * sizeof(int32_t));
  RETURN_IF_ERROR(batches.Read(1));
  ASSIGN_OR_RETURN(const WeightsReader exported, WeightsReader::Open(folder + "/hf", job.model));
  RETURN_IF_ERROR(SaveLogits(job, exported, batches.tokens().ids, folder + "/logits.f32", *device));
  return Train(job, layout, folder, *device, *comms[0]);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = weft::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "weft_torch_side: %s\n", status.ToString().c_str());
  return 1;
}
