// Graphs: stretches of a stream's work that are kept as CUDA graphs, so that the host starts all
// kernels of one with a single call. A stretch is captured when it comes for the second time: at
// the first, products choose their algorithms and attention is compiled, which waits for the
// device. The same kernels in the same order on one stream: the same bits. Used by the device's
// thread.
//
// Capture is of that thread alone (thread-local mode): what others do meanwhile (the watch over
// NCCL) is not touched, and other streams (collectives beside compute, copies to the host) are
// outside.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>

#include "worker/backend/failure.h"

namespace weft {

class Graphs {
 public:
  // So many are kept; stretches beyond them are queued as they come. A graph takes memory of the
  // driver's for each of its kernels, on the device too.
  static constexpr int kMostGraphs = 128;

  // `stream` outlives it. Not `keeps`: it only passes calls on.
  Graphs(cudaStream_t stream, bool keeps) : stream_(stream), keeps_(keeps) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Device::Replay. `failure` is the first of the device's operations, which sticks; what fails in
  // a capture is no failure, for nothing has been executed: the stretch is queued once more, and
  // none is captured after it.
  void Replay(int64_t key, void (*queue)(void* context), void* context, FirstFailure& failure);

  // Asked by whatever cannot be part of a graph, before it does anything: whether a stretch is
  // being captured. If so it is not kept, because of `what`, and the caller does nothing.
  bool Refuses(const char* what);

  const char* Describe();

 private:
  bool MayCapture() const { return broken_.ok() && num_graphs_ < kMostGraphs; }
  BackendStatus Capture(void (*queue)(void* context), void* context, FirstFailure& failure,
                        cudaGraphExec_t* graph);

  const cudaStream_t stream_;
  const bool keeps_;
  std::map<int64_t, cudaGraphExec_t> graphs_;  // by key, of all that have come; null: not kept
  int num_graphs_ = 0;
  bool is_capturing_ = false;
  BackendStatus refused_;  // of the capture at hand
  BackendStatus broken_;   // why a capture has failed
  std::string description_;
};

}  // namespace weft
