#include "worker/process/inference_session.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/model_json.h"
#include "checkpoint/weights_reader.h"
#include "data/sampling.h"
#include "plan/errors.h"
#include "plan/spec/cluster.h"
#include "process/version.h"
#include "text/json.h"
#include "worker/backend/loader.h"
#include "worker/model/inference.h"
#include "worker/model/sampling.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostRequestBytes = int64_t{64} << 20;  // the ids of a prompt of 4 MiB

class Events {
 public:
  explicit Events(std::ostream& out) : out_(out) {}
  void Write(const Json& event) {
    out_ << event.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }

 private:
  std::ostream& out_;
};

// A backend's device, closed at the end of its scope.
class OpenedDevice {
 public:
  static absl::StatusOr<std::unique_ptr<OpenedDevice>> Open(const Json& request,
                                                            const std::string& backend_folder) {
    ASSIGN_OR_RETURN(const BackendKind kind,
                     ParseBackend(request.at("backend").get<std::string>()));
    ASSIGN_OR_RETURN(const BackendApi* const api, LoadBackend(kind, backend_folder));
    // The same request has the same answer; and each pass of a generation has another length, for
    // which kernels that are compiled by shape would cost seconds: deterministic ways have none.
    const DeviceOptions options{
        .local_index = 0, .threads = request.at("threads").get<int>(), .deterministic = true};
    Device* device = nullptr;
    RETURN_IF_ERROR(ToStatus(api->open_device(&options, &device)));
    return std::unique_ptr<OpenedDevice>(new OpenedDevice(api, device));
  }
  ~OpenedDevice() { api_->close_device(device_); }
  OpenedDevice(const OpenedDevice&) = delete;
  OpenedDevice& operator=(const OpenedDevice&) = delete;

  Device& device() { return *device_; }

 private:
  OpenedDevice(const BackendApi* api, Device* device) : api_(api), device_(device) {}

  const BackendApi* api_;
  Device* device_;
};

struct OpenedWeights {
  ModelShape model;
  WeightsReader reader;
};

absl::StatusOr<OpenedWeights> OpenWeights(const Json& request) {
  const auto folder = request.at("weights").get<std::string>();
  absl::StatusOr<ModelShape> model = ParseModelJson(request.at("model").dump());
  if (!model.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("model: ", model.status().message()));
  }
  ASSIGN_OR_RETURN(WeightsReader reader, WeightsReader::Open(folder, *model));
  return OpenedWeights{*std::move(model), std::move(reader)};
}

// How the run kept documents apart.
DataSpec DocumentsOf(const Json& request) {
  const Json& documents = request.at("documents");
  const auto id = [&documents](const char* key) -> std::optional<int64_t> {
    if (documents.at(key).is_null()) return std::nullopt;
    return documents.at(key).get<int64_t>();
  };
  DataSpec data;
  data.bos_token_id = id("bos_token_id");
  data.eos_token_id = id("eos_token_id");
  data.reset_attention_mask = documents.at("reset_attention_mask").get<bool>();
  data.reset_position_ids = documents.at("reset_position_ids").get<bool>();
  return data;
}

absl::StatusOr<std::unique_ptr<Inference>> Loaded(const Json& request, const OpenedWeights& opened,
                                                  InferenceExtents extents, Device& device,
                                                  Events& events) {
  const DataSpec documents = DocumentsOf(request);
  extents.masks_documents = documents.reset_attention_mask;
  extents.threads = request.at("threads").get<int>();
  ASSIGN_OR_RETURN(std::unique_ptr<Inference> inference,
                   Inference::Create(opened.model, extents, documents, device));
  RETURN_IF_ERROR(inference->Load(opened.reader, [&] { events.Write({{"event", "loading"}}); }));
  events.Write({{"event", "ready"}, {"bytes", inference->bytes()}});
  return inference;
}

// The held-out samples that the request names, as the job that validated would have read them.
absl::StatusOr<Dataset> OpenData(const Json& request, const ModelShape& model) {
  JobSpec job;
  job.model = model;
  job.training.seq_len = request.at("seq_len").get<int64_t>();
  ASSIGN_OR_RETURN(job.data.format, ParseTokenFormat(request.at("format").get<std::string>()));
  const std::string dtype = request.at("dtype").get<std::string>();
  if (dtype != "auto") {
    ASSIGN_OR_RETURN(job.data.dtype, ParseTokenDtype(dtype));
  }
  job.data.split = request.at("split").get<double>();
  auto& sources = job.data.split > 0 ? job.data.train : job.data.valid;
  for (const Json& file : request.at("files")) sources.push_back({file.get<std::string>()});
  absl::StatusOr<Dataset> data = Dataset::Open(job, /*train=*/false);
  // A file that is too short is a wrong choice of file here, no lack of room.
  if (!absl::IsFailedPrecondition(data.status())) return data;
  return absl::InvalidArgumentError(data.status().message());
}

absl::Status Evaluate(const Json& request, const OpenedWeights& opened, Device& device,
                      Events& events) {
  ASSIGN_OR_RETURN(const Dataset data, OpenData(request, opened.model));
  const auto seq_len = request.at("seq_len").get<int64_t>();
  int64_t sequences = request.at("sequences").get<int64_t>();
  if (sequences == 0) sequences = data.windows();
  const int64_t batch = std::min(request.at("batch").get<int64_t>(), sequences);
  const auto global_batch = request.at("global_batch").get<int64_t>();
  ASSIGN_OR_RETURN(const std::unique_ptr<Inference> inference,
                   Loaded(request, opened, {.batch = batch, .seq_len = seq_len}, device, events));
  std::vector<int32_t> ids, targets;
  // In the order of the trainer's Validate, whose bits are wanted: sums of sums.
  double loss_sum = 0, of_global_batch = 0;
  for (int64_t first = 0; first < sequences; first += batch) {
    const int64_t count = std::min(batch, sequences - first);
    const int64_t done = first + count;
    const auto window = static_cast<size_t>(seq_len);
    ids.resize(static_cast<size_t>(count) * window);
    targets.resize(ids.size());
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(i) * window;
      RETURN_IF_ERROR(data.Sample(first + i, absl::MakeSpan(ids).subspan(at, window),
                                  absl::MakeSpan(targets).subspan(at, window)));
    }
    ASSIGN_OR_RETURN(const double loss, inference->LossSum(ids, targets));
    of_global_batch += loss;
    if (done % global_batch == 0 || done == sequences) {
      loss_sum += std::exchange(of_global_batch, 0.0);
    }
    events.Write({{"event", "progress"}, {"sequences", done}});
  }
  events.Write({{"event", "loss"},
                {"loss_sum", loss_sum},  // null if it is not finite
                {"loss_sum_hex", absl::StrFormat("%a", loss_sum)},
                {"tokens", sequences * seq_len}});
  return absl::OkStatus();
}

absl::Status Generate(const Json& request, const OpenedWeights& opened, Device& device,
                      Events& events) {
  auto ids = request.at("ids").get<std::vector<int32_t>>();
  const auto max_tokens = request.at("max_tokens").get<int64_t>();
  const auto stop_ids = request.at("stop_ids").get<std::set<int32_t>>();
  const auto vocabulary =
      std::min(request.at("vocabulary").get<int64_t>(), opened.model.vocab_size);
  const SamplingOptions sampling = {.temperature = request.at("temperature").get<double>(),
                                    .top_k = request.at("top_k").get<int64_t>(),
                                    .top_p = request.at("top_p").get<double>(),
                                    .seed = request.at("seed").get<uint64_t>()};
  for (const int32_t id : ids) {
    if (id >= 0 && id < opened.model.vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("the prompt holds id ", id,
                                                   ", the model's vocabulary has ids 0 to ",
                                                   opened.model.vocab_size - 1));
  }
  if (ids.empty() || std::ssize(ids) > opened.model.max_positions || max_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", ids.size(),
                                                   " tokens, the model takes 1 to ",
                                                   opened.model.max_positions));
  }
  const InferenceExtents extents = GenerationExtents(opened.model, std::ssize(ids), max_tokens);
  ASSIGN_OR_RETURN(const std::unique_ptr<Inference> inference,
                   Loaded(request, opened, extents, device, events));
  int64_t positions = 0;
  for (int64_t drawn = 0; drawn < max_tokens; ++drawn) {
    if (positions == opened.model.max_positions) {
      events.Write({{"event", "end"}, {"why", "positions"}});
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const absl::Span<const float> logits, inference->Append(ids));
    positions += std::ssize(ids);
    const int32_t id =
        NextToken(logits.subspan(0, static_cast<size_t>(vocabulary)), sampling, drawn);
    if (id < 0) {
      return absl::OutOfRangeError(
          "the model's logits are not finite: its training has diverged; use an earlier "
          "checkpoint");
    }
    if (stop_ids.count(id) > 0) {
      events.Write({{"event", "end"}, {"why", "stop_id"}});
      return absl::OkStatus();
    }
    events.Write({{"event", "token"}, {"id", id}});
    ids = {id};
  }
  events.Write({{"event", "end"}, {"why", "max_tokens"}});
  return absl::OkStatus();
}

absl::Status Serve(const Json& request, const std::string& backend_folder, Events& events) {
  if (request.at("version").get<std::string>() != Version()) {
    return absl::FailedPreconditionError(
        absl::StrCat("weft is ", request.at("version").get<std::string>(), ", weft-worker is ",
                     Version(), "; install both from one build"));
  }
  ASSIGN_OR_RETURN(const OpenedWeights opened, OpenWeights(request));
  ASSIGN_OR_RETURN(const std::unique_ptr<OpenedDevice> device,
                   OpenedDevice::Open(request, backend_folder));
  const auto task = request.at("task").get<std::string>();
  if (task == "evaluate") return Evaluate(request, opened, device->device(), events);
  if (task == "generate") return Generate(request, opened, device->device(), events);
  return absl::InvalidArgumentError(absl::StrCat("task: ", task, "; use evaluate or generate"));
}

}  // namespace

int RunInferenceSession(std::istream& request, std::ostream& events,
                        const std::string& backend_folder) {
  Events out(events);
  absl::Status status;
  try {
    const std::string text{std::istreambuf_iterator<char>(request), {}};
    const absl::StatusOr<Json> read = ParseJson(text, {.most_bytes = kMostRequestBytes});
    status = read.ok()
                 ? Serve(*read, backend_folder, out)
                 : absl::InvalidArgumentError(absl::StrCat("request: ", read.status().message()));
  } catch (const Json::exception& wrong) {
    status = absl::InvalidArgumentError(absl::StrCat("request: ", wrong.what()));
  }
  if (status.ok()) return 0;
  out.Write({{"event", "error"},
             {"code", static_cast<int>(status.code())},
             {"message", std::string(status.message())}});
  return 1;
}

}  // namespace weft
