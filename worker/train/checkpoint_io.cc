#include "worker/train/checkpoint_io.h"

#include <sched.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights_reader.h"
#include "plan/errors.h"
#include "plan/shards/buckets.h"
#include "plan/shards/factored_moments.h"
#include "worker/backend/quantisation.h"
#include "worker/state/groups.h"
#include "worker/state/initial_weights.h"

namespace weft {
namespace {

constexpr absl::string_view kFileFact = "data.train[";

// "path size:hash" -> "size:hash"
absl::string_view WithoutPath(absl::string_view fingerprint) {
  const size_t space = fingerprint.rfind(' ');
  return space == absl::string_view::npos ? fingerprint : fingerprint.substr(space + 1);
}

// Reads back as the same double.
std::string NumberText(double value) {
  const std::string text = absl::StrCat(value);
  double back = 0;
  return absl::SimpleAtod(text, &back) && back == value ? text : absl::StrFormat("%.17g", value);
}

struct NamedTensor {
  std::string name;
  View values;
  View scales = {};  // of values that are codes
  QuantisedSign sign = QuantisedSign::kAny;
};

// The weight and each optimizer state of `piece`, by the names that checkpoints use.
std::vector<NamedTensor> TensorsOf(const OwnPiece& piece) {
  const std::string& name = piece.shard.tensor.name;
  std::vector<NamedTensor> tensors = {{.name = name, .values = piece.master}};
  for (const auto& [array, values] : piece.states) {
    if (array.form == StateForm::kScales) {
      tensors.back().scales = values;
      continue;
    }
    tensors.push_back({.name = absl::StrCat("optimizer.", array.name, ".", name),
                       .values = values,
                       .sign = array.form == StateForm::kUnsignedCodes ? QuantisedSign::kNone
                                                                       : QuantisedSign::kAny});
  }
  return tensors;
}

// Factored moments of a whole tensor, by the names that checkpoints use.
struct NamedMoments {
  std::string name;
  View values;  // one row
};
std::vector<NamedMoments> MomentsOf(const Parameter& parameter) {
  const auto& [rows, cols, row_mean] = parameter.moments;
  const TensorSpec& tensor = parameter.shard.tensor;
  std::vector<NamedMoments> moments;
  if (rows.data != nullptr) moments.push_back({RowMomentsName(tensor), rows});
  if (cols.data != nullptr) moments.push_back({ColumnMomentsName(tensor), cols});
  return moments;
}

// Tells which of the ranks that hold a tensor's factored moments writes them: the one that writes
// the tensor's first element.
bool HasFirstElement(const OwnPiece& piece) {
  return piece.range.begin == 0 && std::all_of(piece.shard.begin.begin(), piece.shard.begin.end(),
                                               [](int64_t begin) { return begin == 0; });
}

// Files hold fp32 whatever the device does: codes are made wide, and quantised again to the same
// bits (worker/backend/quantisation.h).
void CopyToHost(const NamedTensor& tensor, absl::Span<float> values, Device& device) {
  if (tensor.scales.data == nullptr) {
    device.CopyOut(values.data(), tensor.values);
    return;
  }
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(static_cast<size_t>(tensor.scales.elements()));
  device.CopyOut(codes.data(), tensor.values);
  device.CopyOut(scales.data(), tensor.scales);
  Dequantise(tensor.sign, codes.data(), scales.data(), std::ssize(values), values.data());
}

void CopyToDevice(const NamedTensor& tensor, absl::Span<const float> values, Device& device) {
  if (tensor.scales.data == nullptr) {
    device.CopyIn(tensor.values, values.data());
    return;
  }
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(static_cast<size_t>(tensor.scales.elements()));
  Quantise(tensor.sign, values.data(), std::ssize(values), codes.data(), scales.data());
  device.CopyIn(tensor.values, codes.data());
  device.CopyIn(tensor.scales, scales.data());
}

using ReadBox = absl::FunctionRef<absl::Status(const TensorShard& box, absl::Span<float> values)>;

// The boxes of `piece`, one after the other.
absl::Status ReadPiece(const OwnPiece& piece, ReadBox read, std::vector<float>& values) {
  values.resize(static_cast<size_t>(piece.range.size()));
  absl::Span<float> rest = absl::MakeSpan(values);
  for (const TensorShard& box : BoxesOf(piece.shard, piece.range)) {
    const auto count = static_cast<size_t>(box.elements());
    RETURN_IF_ERROR(read(box, rest.first(count)));
    rest.remove_prefix(count);
  }
  return absl::OkStatus();
}

// Counts the processors of the affinity mask only, as a launcher may have bound each rank to its
// own.
int UsableProcessors() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

// Master weights from what `read` knows of each tensor by its name.
absl::Status FillWeights(const Parameters& parameters, Device& device, ReadBox read) {
  std::vector<float> values;
  for (const OwnPiece& piece : parameters.own()) {
    RETURN_IF_ERROR(ReadPiece(piece, read, values));
    device.CopyIn(piece.master, values.data());
  }
  return absl::OkStatus();
}

// Returns for each piece which of `replicas` ranks writes it: the one with the least to write so
// far, the first among equals. The result is the same on all of them, as they own the same pieces.
std::vector<int> Deal(absl::Span<const OwnPiece> own, int replicas) {
  std::vector<int64_t> elements(static_cast<size_t>(replicas), 0);
  std::vector<int> writers;
  for (const OwnPiece& piece : own) {
    const auto least = std::min_element(elements.begin(), elements.end());
    if (piece.shard.primary) *least += piece.range.size();
    writers.push_back(static_cast<int>(least - elements.begin()));
  }
  return writers;
}

}  // namespace

std::map<std::string, std::string> RunFacts(const JobSpec& job, const Batches& batches) {
  std::map<std::string, std::string> facts;
  facts["training.seed"] = absl::StrCat(job.training.seed);
  facts["training.seq_len"] = absl::StrCat(job.training.seq_len);
  facts["training.global_batch_size"] = absl::StrCat(job.training.global_batch_size);
  facts["optimizer.name"] = absl::StrCat(WordOf(job.optimizer.name));
  facts["data.format"] = absl::StrCat(WordOf(job.data.format));
  facts["data.split"] = NumberText(job.data.split);
  if (job.data.reset_attention_mask) {
    facts["data.reset_attention_mask"] = "true";
    facts["data.reset_position_ids"] = job.data.reset_position_ids ? "true" : "false";
  }
  if (job.data.bos_token_id) facts["data.bos_token_id"] = absl::StrCat(*job.data.bos_token_id);
  if (job.data.eos_token_id) facts["data.eos_token_id"] = absl::StrCat(*job.data.eos_token_id);
  const std::vector<std::string> fingerprints = batches.dataset().Fingerprints();
  for (size_t file = 0; file < fingerprints.size(); ++file) {
    facts[absl::StrCat(kFileFact, file, "]")] = fingerprints[file];
  }
  return facts;
}

std::map<std::string, std::string> ReaderFacts(const JobSpec& job, const Layout& layout,
                                               const Batches* valid) {
  std::map<std::string, std::string> facts;
  facts["training.micro_batch_size"] = absl::StrCat(layout.micro_batch_size);
  facts["training.mixed_precision"] = absl::StrCat(WordOf(job.training.mixed_precision));
  if (job.data.dtype) facts["data.dtype"] = absl::StrCat(WordOf(*job.data.dtype));
  if (valid == nullptr) return facts;
  facts["validation.steps"] = absl::StrCat(job.validation.steps);
  if (job.data.valid.empty()) return facts;  // a part of data.train, which RunFacts has
  const std::vector<std::string> fingerprints = valid->dataset().Fingerprints();
  for (size_t file = 0; file < fingerprints.size(); ++file) {
    facts[absl::StrCat("data.valid[", file, "]")] = fingerprints[file];
  }
  return facts;
}

std::map<std::string, std::string> MathematicsFacts(const RunIdentity& run) {
  std::map<std::string, std::string> facts;
  for (const auto& [key, value] : run.mathematics) {
    facts[absl::StrCat(kMathematicsFact, key)] = value;
  }
  for (size_t i = 0; i < run.accepted.size(); ++i) {
    facts[absl::StrCat(kAcceptedFact, i, "]")] = run.accepted[i];
  }
  return facts;
}

std::map<std::string, std::string> ComputationFacts(
    const std::map<std::string, std::string>& computes_by) {
  std::map<std::string, std::string> facts;
  for (const auto& [what, value] : computes_by) facts[absl::StrCat("computed_by.", what)] = value;
  return facts;
}

std::vector<std::string> OtherComputation(const Manifest& manifest,
                                          const std::map<std::string, std::string>& computes_by) {
  std::vector<std::string> differences;
  for (const auto& [key, now] : ComputationFacts(computes_by)) {
    const auto was = manifest.facts.find(key);
    if (was == manifest.facts.end() || was->second == now) continue;
    differences.push_back(absl::StrCat(
        "checkpoint of step ", manifest.step, ": ", key, " was \"", was->second,
        "\", but is now \"", now,
        "\"; the run goes on, but losses may differ in bits from those it would have had: ",
        "resume where these are the same to repeat them"));
  }
  return differences;
}

absl::Status CheckFacts(const Manifest& manifest, const std::map<std::string, std::string>& facts) {
  for (const auto& [key, now] : facts) {
    const auto found = manifest.facts.find(key);
    const std::string was = found == manifest.facts.end() ? "not stated" : found->second;
    const bool is_file = absl::StartsWith(key, kFileFact);
    if (is_file ? WithoutPath(was) == WithoutPath(now) : was == now) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint of step ", manifest.step, ": ", key, " was ", was, ", but is now ", now,
        is_file ? "; restore the file, or start anew with --fresh"
                : "; set it back, or start anew with --fresh"));
  }
  return absl::OkStatus();
}

void DrawInitialWeights(uint64_t seed, int local_ranks, const Parameters& parameters,
                        Device& device) {
  const int threads = std::max(1, UsableProcessors() / std::max(1, local_ranks));
  const auto draw = [&](const TensorShard& box, absl::Span<float> values) {
    FillInitialValues(box, seed, threads, values);
    return absl::OkStatus();
  };
  CHECK(FillWeights(parameters, device, draw).ok());
}

absl::Status LoadWeights(const std::string& folder, const ModelShape& model,
                         const Parameters& parameters, Device& device) {
  ASSIGN_OR_RETURN(const WeightsReader reader, WeightsReader::Open(folder, model));
  return FillWeights(parameters, device, [&](const TensorShard& box, absl::Span<float> values) {
    return reader.Read(box.tensor, box.begin, box.end, values);
  });
}

absl::StatusOr<Manifest> LoadCheckpoint(const std::string& step_folder,
                                        const Parameters& parameters, Device& device) {
  ASSIGN_OR_RETURN(Manifest manifest, CheckManifest(step_folder));
  ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(step_folder, manifest));
  std::vector<float> values;
  for (const OwnPiece& piece : parameters.own()) {
    for (const NamedTensor& tensor : TensorsOf(piece)) {
      const auto read = [&](const TensorShard& box, absl::Span<float> out) {
        return reader.Read(tensor.name, box.tensor.dims, box.begin, box.end, out);
      };
      RETURN_IF_ERROR(ReadPiece(piece, read, values));
      CopyToDevice(tensor, values, device);
    }
  }
  for (const Parameter& parameter : parameters.all()) {
    for (const auto& [name, moments] : MomentsOf(parameter)) {
      const int64_t count = moments.elements();
      values.resize(static_cast<size_t>(count));
      RETURN_IF_ERROR(reader.Read(name, {count}, {0}, {count}, absl::MakeSpan(values)));
      device.CopyIn(moments, values.data());
    }
  }
  return manifest;
}

absl::StatusOr<OwnShard> OwnShard::Copy(const Replica& replica, const Parameters& parameters,
                                        Device& device) {
  OwnShard own;
  std::list<std::vector<float>>& host = own.host_;
  std::vector<BoxToSave>& boxes = own.boxes_;
  const std::vector<int> writers = Deal(parameters.own(), replica.count);
  for (size_t i = 0; i < writers.size(); ++i) {
    const OwnPiece& piece = parameters.own()[i];
    if (!piece.shard.primary || writers[i] != replica.index) continue;
    for (const NamedTensor& tensor : TensorsOf(piece)) {
      std::vector<float>& values = host.emplace_back(static_cast<size_t>(piece.range.size()));
      CopyToHost(tensor, absl::MakeSpan(values), device);
      absl::Span<const float> rest = values;
      for (const TensorShard& box : BoxesOf(piece.shard, piece.range)) {
        const auto count = static_cast<size_t>(box.elements());
        boxes.push_back({.name = tensor.name,
                         .dims = box.tensor.dims,
                         .begin = box.begin,
                         .end = box.end,
                         .values = rest.first(count)});
        rest.remove_prefix(count);
      }
    }
    if (!HasFirstElement(piece)) continue;
    for (const auto& [name, moments] : MomentsOf(parameters.all()[piece.parameter])) {
      const int64_t count = moments.elements();
      std::vector<float>& values = host.emplace_back(static_cast<size_t>(count));
      device.CopyOut(values.data(), moments);
      boxes.push_back({name, {count}, {0}, {count}, values});
    }
  }
  RETURN_IF_ERROR(ToStatus(device.Synchronize(), "copy the shard to the host"));
  return own;
}

}  // namespace weft
