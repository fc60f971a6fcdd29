// Inference of a checkpoint on this machine: starts one `weft-worker --infer`, hands it a request
// and passes on what it reports, line by line as it comes (worker/process/inference_session.h has
// both forms). The worker is gone when the call returns.
#pragma once
#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/inference/checkpoint_target.h"
#include "plan/memory/inference_memory.h"
#include "plan/spec/cluster.h"
#include "plan/spec/model.h"

namespace weft {

// FailedPrecondition if this machine has less free memory than the worker's list takes. `knob`:
// what would make it less. A GPU's memory is judged by the worker.
absl::Status CheckMemory(const ModelShape& model, const InferenceExtents& extents,
                         BackendKind backend, absl::string_view knob);

// The request's "documents": how the run of the checkpoint kept them apart.
nlohmann::json DocumentsJson(const CheckpointData& data);

// Adds "weights" and "model".
void DescribeWeights(const FoundWeights& found, nlohmann::json* request);

struct InferenceRun {
  nlohmann::json request;  // its "version" is added
  int threads = 1;         // CPU: BLAS threads
  const std::atomic<bool>* stop = nullptr;
};

// Calls `take` for each event but "loading" and "error". The worker's own error comes back as it
// was; Cancelled if `stop` became true; Internal if the worker ended without a word;
// InvalidArgument if there is no weft-worker beside this executable nor in PATH.
absl::Status RunInference(const InferenceRun& run,
                          const std::function<void(const nlohmann::json& event)>& take);

}  // namespace weft
