#include "worker/backend/cuda/attention_cudnn.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>

#include "worker/backend/cuda/attention_graphs.h"
#include "worker/backend/cuda/cudnn_graph.h"
#include "worker/backend/cuda/cudnn_library.h"
#include "worker/backend/cuda/graphs.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

// Before 9.15.1, cuDNN's frontend gives gradients of sequences that are no whole tiles a padding
// mask, to work around a fault. These graphs have none.
BackendStatus CheckTiles(int version, AttentionPass pass, const AttentionShape& shape) {
  constexpr int kFirstWithoutFault = 91501;
  constexpr int64_t kTile = 128;
  if (pass == AttentionPass::kForward || version >= kFirstWithoutFault ||
      shape.seq_len % kTile == 0) {
    return {};
  }
  return Failure(kUnimplemented,
                 "%lld positions are no multiple of 128, which cuDNN before 9.15.1 has faults with",
                 static_cast<long long>(shape.seq_len));
}

class Attention final : public CudnnAttention {
 public:
  Attention(const CudnnLibrary& library, const Queue& queue)
      : library_(library), stream_(queue.stream), graphs_(queue.graphs) {
    none_.status = Failure(kInternal, "attention of a new shape while a graph is captured");
  }
  ~Attention() override {
    entries_.clear();
    if (handle_ != nullptr) library_.destroy(handle_);
  }

  BackendStatus Open() {
    BackendStatus status = library_.ToStatus(library_.create(&handle_), "cudnnCreate");
    if (status.ok()) {
      status = library_.ToStatus(library_.set_stream(handle_, stream_), "cudnnSetStream");
    }
    return status;
  }

  BackendStatus Prepare(AttentionPass pass, const AttentionShape& shape, DType dtype,
                        int64_t scratch_bytes) override {
    return EntryOf(pass, shape, dtype, scratch_bytes).status;
  }

  BackendStatus Forward(const AttentionShape& shape, const AttentionTensors& tensors,
                        View scratch) override {
    const float scale = ScaleOf(shape);
    return EntryOf(AttentionPass::kForward, shape, tensors.q.dtype, scratch.bytes())
        .plan->Run(handle_,
                   {Pointer(AttentionTensor::kQ, tensors.q.data),
                    Pointer(AttentionTensor::kK, tensors.k.data),
                    Pointer(AttentionTensor::kV, tensors.v.data),
                    Pointer(AttentionTensor::kO, tensors.o.data),
                    Pointer(AttentionTensor::kLse, tensors.lse.data),
                    Pointer(AttentionTensor::kScale, &scale),
                    Pointer(AttentionTensor::kMinusInfinity, &kMinusInfinity)},
                   AttentionScratch::Start(scratch));
  }

  BackendStatus Backward(const AttentionShape& shape, const AttentionTensors& tensors,
                         const AttentionGradientTensors& gradients, View scratch) override {
    const AttentionScratch cut(AttentionPass::kBackward, shape);
    char* const start = AttentionScratch::Start(scratch);
    const float scale = ScaleOf(shape);
    const float one = 1;
    return EntryOf(AttentionPass::kBackward, shape, tensors.q.dtype, scratch.bytes())
        .plan->Run(handle_,
                   {Pointer(AttentionTensor::kQ, tensors.q.data),
                    Pointer(AttentionTensor::kK, tensors.k.data),
                    Pointer(AttentionTensor::kV, tensors.v.data),
                    Pointer(AttentionTensor::kO, tensors.o.data),
                    Pointer(AttentionTensor::kLse, tensors.lse.data),
                    Pointer(AttentionTensor::kDout, gradients.dout.data),
                    Pointer(AttentionTensor::kDq, gradients.dq.data),
                    Pointer(AttentionTensor::kDk, gradients.dk.data),
                    Pointer(AttentionTensor::kDv, gradients.dv.data),
                    Pointer(AttentionTensor::kDqSums, start),
                    Pointer(AttentionTensor::kOutputSums, start + cut.output_sums_at),
                    Pointer(AttentionTensor::kScale, &scale),
                    Pointer(AttentionTensor::kMinusInfinity, &kMinusInfinity),
                    Pointer(AttentionTensor::kOne, &one)},
                   start + cut.workspace_at);
  }

 private:
  struct Entry {
    BackendStatus status;
    std::unique_ptr<CudnnGraph> plan;  // null: cuDNN does not serve
  };
  using Key = std::tuple<AttentionPass, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t, DType, int64_t>;

  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

  static float ScaleOf(const AttentionShape& shape) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  }
  static GraphPointers::value_type Pointer(AttentionTensor id, const void* data) {
    return {static_cast<int64_t>(id), data};
  }

  const Entry& EntryOf(AttentionPass pass, const AttentionShape& shape, DType dtype,
                       int64_t scratch_bytes) {
    const Key key = {pass,           shape.batch,    shape.seq_len,        shape.heads,
                     shape.head_dim, shape.kv_heads, shape.query_stride(), shape.key_stride(),
                     dtype,          scratch_bytes};
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
    if (graphs_ != nullptr && graphs_->Refuses("compiling attention")) return none_;
    Entry& entry = entries_[key];
    entry.status = CheckTiles(library_.version, pass, shape);
    if (!entry.status.ok()) return entry;
    entry.status = PlanAttention(library_, {.handle = handle_}, pass, shape, dtype, scratch_bytes,
                                 &entry.plan);
    if (!entry.status.ok()) return entry;
    const int64_t needed = CudnnScratchBytes(pass, shape, entry.plan->workspace_bytes());
    if (needed > scratch_bytes) {
      entry.plan.reset();
      entry.status = Failure(
          kFailedPrecondition, "cuDNN %s needs %lld bytes of scratch here, the plan has %lld",
          CudnnVersion(), static_cast<long long>(needed), static_cast<long long>(scratch_bytes));
    }
    return entry;
  }

  const CudnnLibrary& library_;
  const cudaStream_t stream_;
  Graphs* const graphs_;  // null: none
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, Entry> entries_;
  Entry none_;
};

}  // namespace

const char* CudnnVersion() {
  static const std::array<char, 16> version = [] {
    std::array<char, 16> text = {};
    const CudnnLibrary* cudnn = nullptr;
    if (LoadCudnn(&cudnn).ok()) {
      std::snprintf(text.data(), text.size(), "%d.%d.%d", cudnn->version / 10000,
                    cudnn->version / 100 % 100, cudnn->version % 100);
    }
    return text;
  }();
  return version.data();
}

BackendStatus OpenCudnnAttention(const Queue& queue, std::unique_ptr<CudnnAttention>* attention) {
  const CudnnLibrary* library = nullptr;
  if (const BackendStatus status = LoadCudnn(&library); !status.ok()) return status;
  auto opened = std::make_unique<Attention>(*library, queue);
  if (const BackendStatus status = opened->Open(); !status.ok()) return status;
  *attention = std::move(opened);
  return {};
}

}  // namespace weft
