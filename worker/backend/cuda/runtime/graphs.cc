#include "worker/backend/cuda/runtime/graphs.h"

#include "worker/backend/cuda/runtime/cuda_status.h"

namespace weft {

Graphs::~Graphs() {
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
}

void Graphs::Replay(int64_t key, void (*queue)(void* context), void* context,
                    FirstFailure& failure) {
  if (!keeps_ || is_capturing_) {
    queue(context);
    return;
  }
  const auto [found, is_first] = graphs_.try_emplace(key, nullptr);
  cudaGraphExec_t& graph = found->second;
  if (graph == nullptr && !is_first && failure.ok() && MayCapture()) {
    broken_ = Capture(queue, context, failure, &graph);
    if (graph != nullptr) ++num_graphs_;
  }
  if (graph == nullptr) {
    queue(context);
    return;
  }
  const cudaError_t code = cudaGraphLaunch(graph, stream_);
  failure.Keep(FromCuda(code, "launching a graph"));
}

// Leaves `failure` as it was: OK.
BackendStatus Graphs::Capture(void (*queue)(void* context), void* context, FirstFailure& failure,
                              cudaGraphExec_t* graph) {
  cudaError_t code = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (code != cudaSuccess) return FromCuda(code, "beginning to capture a graph");
  refused_ = {};
  is_capturing_ = true;
  queue(context);
  is_capturing_ = false;
  cudaGraph_t captured = nullptr;
  code = cudaStreamEndCapture(stream_, &captured);
  BackendStatus why = failure.Take();
  if (!refused_.ok()) why = refused_;
  if (why.ok()) why = FromCuda(code, "capturing a graph");
  if (why.ok()) why = FromCuda(cudaGraphInstantiate(graph, captured, 0), "making a graph");
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (!why.ok()) {
    *graph = nullptr;
    cudaGetLastError();  // no lasting error
  }
  return why;
}

bool Graphs::Refuses(const char* what) {
  if (is_capturing_ && refused_.ok()) {
    refused_ = Failure(kInternal, "%s cannot be part of a graph", what);
  }
  return is_capturing_;
}

const char* Graphs::Describe() {
  if (!keeps_) return "";
  description_ = "CUDA graphs of " + std::to_string(num_graphs_) + " stretches";
  if (!broken_.ok()) {
    description_ += std::string("; no more, for a capture has failed: ") + broken_.text;
  } else if (num_graphs_ == kMostGraphs) {
    description_ += ", the most that are kept";
  }
  return description_.c_str();
}

}  // namespace weft
