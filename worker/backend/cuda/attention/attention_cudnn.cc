#include "worker/backend/cuda/attention/attention_cudnn.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "worker/backend/cuda/attention/attention_graphs.h"
#include "worker/backend/cuda/attention/attention_parts.h"
#include "worker/backend/cuda/attention/cudnn_graph.h"
#include "worker/backend/cuda/attention/cudnn_library.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/cuda/runtime/graphs.h"
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
  return Failure(
      kUnimplemented,
      "%lld positions are not a multiple of 128, which cuDNN before 9.15.1 has faults with",
      static_cast<long long>(shape.seq_len));
}

class Attention final : public CudnnAttention {
 public:
  Attention(const CudnnLibrary& library, const Queue& queue) : library_(library), queue_(queue) {
    none_.status = Failure(kInternal, "attention of a new shape while a graph is captured");
  }
  ~Attention() override {
    entries_.clear();
    if (handle_ != nullptr) library_.destroy(handle_);
  }

  BackendStatus Open() {
    BackendStatus status = library_.ToStatus(library_.create(&handle_), "cudnnCreate");
    if (status.ok()) {
      status = library_.ToStatus(library_.set_stream(handle_, queue_.stream), "cudnnSetStream");
    }
    int device = 0;
    cudaDeviceProp properties = {};
    if (status.ok()) status = FromCuda(cudaGetDevice(&device), "cudaGetDevice");
    if (status.ok()) {
      status = FromCuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    }
    capability_ = properties.major;
    return status;
  }

  BackendStatus Prepare(AttentionPass pass, const AttentionShape& shape, DType dtype,
                        int64_t scratch_bytes) override {
    for (const AttentionPart& part : PartsOf(shape)) {
      const Entry& entry = EntryOf(pass, shape, part, dtype, scratch_bytes);
      if (!entry.status.ok()) return entry.status;
    }
    return {};
  }

  BackendStatus Forward(const AttentionShape& shape, const AttentionTensors& tensors,
                        View scratch) override {
    for (const AttentionPart& part : PartsOf(shape)) {
      const AttentionScratch cut(AttentionPass::kForward, shape, part);
      BackendStatus status = Run(AttentionPass::kForward, shape, part, tensors, {}, cut, scratch);
      if (!status.ok()) return status;
    }
    return {};
  }

  BackendStatus Backward(const AttentionShape& shape, const AttentionTensors& tensors,
                         const AttentionGradientTensors& gradients, View scratch) override {
    for (const AttentionPart& part : PartsOf(shape)) {
      const AttentionScratch cut(AttentionPass::kBackward, shape, part);
      char* const start = AttentionScratch::Start(scratch);
      GraphPointers pointers = {
          Pointer(AttentionTensor::kDout, RowsOf(gradients.dout, part)),
          Pointer(AttentionTensor::kDq, RowsOf(gradients.dq, part)),
          Pointer(AttentionTensor::kDk, part.adds ? start + cut.dk_to_add_at : gradients.dk.data),
          Pointer(AttentionTensor::kDv, part.adds ? start + cut.dv_to_add_at : gradients.dv.data),
          Pointer(AttentionTensor::kDqSums, start + cut.dq_sums_at),
          Pointer(AttentionTensor::kOutputSums, start + cut.output_sums_at),
          Pointer(AttentionTensor::kOne, &kOne)};
      if (shape.documents > 0 && shape.kv_heads < shape.heads) {
        pointers.push_back(Pointer(AttentionTensor::kDkOfHeads, start + cut.dk_of_heads_at));
        pointers.push_back(Pointer(AttentionTensor::kDvOfHeads, start + cut.dv_of_heads_at));
      }
      BackendStatus status =
          Run(AttentionPass::kBackward, shape, part, tensors, std::move(pointers), cut, scratch);
      if (status.ok()) status = Finish(shape, part, start + cut.dk_to_add_at, gradients.dk);
      if (status.ok()) status = Finish(shape, part, start + cut.dv_to_add_at, gradients.dv);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  struct Entry {
    BackendStatus status;
    std::unique_ptr<CudnnGraph> plan;  // null: cuDNN does not serve
  };
  using Key = std::tuple<AttentionPass, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t, int64_t, int64_t, int64_t, bool, DType, int64_t>;

  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  static constexpr float kOne = 1;

  static GraphPointers::value_type Pointer(AttentionTensor id, const void* data) {
    return {static_cast<int64_t>(id), data};
  }

  // The part's first row of what has a row for each query.
  static const void* RowsOf(View of_queries, const AttentionPart& part) {
    return of_queries.RowRange(part.query_at, part.queries).data;
  }

  // Queues one part of one pass. `pointers`: those of the gradient alone.
  BackendStatus Run(AttentionPass pass, const AttentionShape& shape, const AttentionPart& part,
                    const AttentionTensors& tensors, GraphPointers pointers,
                    const AttentionScratch& cut, View scratch) {
    char* const start = AttentionScratch::Start(scratch);
    const float scale = shape.score_scale();
    const auto queries = static_cast<int32_t>(part.queries);
    const auto keys = static_cast<int32_t>(part.keys);
    // Statistics of a part before lie whole ahead of its own.
    const auto* const lse =
        static_cast<const float*>(tensors.lse.data) + shape.batch * shape.heads * part.query_at;
    for (const auto& pointer :
         {Pointer(AttentionTensor::kQ, RowsOf(tensors.q, part)),
          Pointer(AttentionTensor::kK, tensors.k.data),
          Pointer(AttentionTensor::kV, tensors.v.data),
          Pointer(AttentionTensor::kO, RowsOf(tensors.o, part)),
          Pointer(AttentionTensor::kLse, lse), Pointer(AttentionTensor::kScale, &scale),
          Pointer(AttentionTensor::kMinusInfinity, &kMinusInfinity)}) {
      pointers.push_back(pointer);
    }
    if (part.queries != part.keys) {
      pointers.push_back(Pointer(AttentionTensor::kQueryCount, &queries));
      pointers.push_back(Pointer(AttentionTensor::kKeyCount, &keys));
    }
    const BackendStatus listed = ListDocuments(shape, tensors, cut.TableAt(start), &pointers);
    if (!listed.ok()) return listed;
    return EntryOf(pass, shape, part, tensors.q.dtype, scratch.bytes())
        .plan->Run(handle_, pointers, start + cut.workspace_at);
  }

  // Makes `sums`, the gradient of k or of v, whole: clears the rows that no query here sees, or
  // adds what this part has left in scratch. REQUIRES: rows follow each other, if there are several
  // parts.
  BackendStatus Finish(const AttentionShape& shape, const AttentionPart& part, char* to_add,
                       View sums) const {
    for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
      const int64_t row = sequence * shape.seq_len;
      if (part.adds) {
        const View own = {to_add, shape.batch * part.keys, sums.cols, sums.dtype};
        const BackendStatus added =
            FromCuda(QueueAdd(queue_, own.RowRange(sequence * part.keys, part.keys),
                              sums.RowRange(row, part.keys)),
                     "adding up attention's gradients");
        if (!added.ok()) return added;
      } else if (part.keys < shape.seq_len) {
        const View unseen = sums.RowRange(row + part.keys, shape.seq_len - part.keys);
        const BackendStatus cleared = FromCuda(
            cudaMemsetAsync(unseen.data, 0, static_cast<size_t>(unseen.bytes()), queue_.stream),
            "clearing attention's gradients");
        if (!cleared.ok()) return cleared;
      }
    }
    return {};
  }

  // Queues the table, which all layers of a microbatch make anew: it lies in scratch, and the call
  // is complete in itself, as a graph of a stretch wants it.
  BackendStatus ListDocuments(const AttentionShape& shape, const AttentionTensors& tensors,
                              const DocumentTable& table, GraphPointers* pointers) const {
    if (shape.documents == 0) return {};
    pointers->push_back(Pointer(AttentionTensor::kQueryLengths, table.lengths));
    pointers->push_back(Pointer(AttentionTensor::kKeyLengths, table.lengths));
    pointers->push_back(Pointer(AttentionTensor::kQueryOffsets, table.query_offsets));
    pointers->push_back(Pointer(AttentionTensor::kKeyOffsets, table.key_offsets));
    pointers->push_back(Pointer(AttentionTensor::kStatisticOffsets, table.statistic_offsets));
    return FromCuda(QueueDocumentTable(queue_, shape, tensors.first_visible, table),
                    "listing documents");
  }

  // A kernel does not go by where among the rank's queries its part begins.
  const Entry& EntryOf(AttentionPass pass, const AttentionShape& shape, const AttentionPart& part,
                       DType dtype, int64_t scratch_bytes) {
    const Key key = {pass,
                     shape.batch,
                     shape.seq_len,
                     shape.heads,
                     shape.head_dim,
                     shape.kv_heads,
                     shape.query_stride(),
                     shape.key_stride(),
                     shape.documents,
                     part.queries,
                     part.keys,
                     part.adds,
                     dtype,
                     scratch_bytes};
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
    if (queue_.graphs != nullptr && queue_.graphs->Refuses("compiling attention")) return none_;
    Entry& entry = entries_[key];
    entry.status = shape.documents > 0 ? CheckDocuments(library_.version, capability_)
                                       : CheckTiles(library_.version, pass, shape);
    if (!entry.status.ok()) return entry;
    entry.status = PlanAttention(library_, {.handle = handle_}, pass, shape, part, dtype,
                                 scratch_bytes, &entry.plan);
    if (!entry.status.ok()) return entry;
    const int64_t needed = CudnnScratchBytes(pass, shape, part, entry.plan->workspace_bytes());
    if (needed > scratch_bytes) {
      entry.plan.reset();
      entry.status = Failure(
          kFailedPrecondition, "cuDNN %s needs %lld bytes of scratch here, the plan has %lld",
          CudnnVersion(), static_cast<long long>(needed), static_cast<long long>(scratch_bytes));
    }
    return entry;
  }

  const CudnnLibrary& library_;
  const Queue queue_;
  int capability_ = 0;  // the device's, its major number
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, Entry> entries_;
  Entry none_;
};

}  // namespace

BackendStatus CheckDocuments(int version, int capability) {
  constexpr int kFirstWithoutFault = 91801;
  if (version < kFirstWithoutFault) {
    return Failure(kUnimplemented,
                   "documents do not see each other, which cuDNN before 9.18.1 has faults with");
  }
  if (capability != 9 && capability != 10) {
    return Failure(
        kUnimplemented,
        "documents do not see each other, which cuDNN serves on compute capability 9 and "
        "10 alone, not on %d",
        capability);
  }
  return {};
}

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
