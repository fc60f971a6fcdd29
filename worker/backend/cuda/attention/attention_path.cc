#include "worker/backend/cuda/attention/attention_path.h"

#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

// Says whether cuDNN is asked for the runs of a rank that has a part of the queries, as
// CheckForCudnn does: the last tiles of a kernel are to be whole, so that nothing hangs on what it
// does with the rest of one, and rows of gradients that are added up are to follow each other.
BackendStatus CheckRuns(const AttentionShape& shape, bool masks_documents) {
  constexpr int64_t kTile = 128;
  if (masks_documents) {
    return Failure(kUnimplemented,
                   "queries see a document or a window, and a rank has a part of them (cp)");
  }
  if (shape.run_len() % kTile != 0) {
    return Failure(kUnimplemented,
                   "runs of %lld positions, of which a rank has two (cp), are not a multiple of %d",
                   static_cast<long long>(shape.run_len()), static_cast<int>(kTile));
  }
  if (shape.key_stride() != shape.kv_heads * shape.head_dim) {
    return Failure(kUnimplemented, "keys of a part of the queries lie in columns of a matrix");
  }
  return {};
}

}  // namespace

BackendStatus CheckForCudnn(const AttentionShape& shape, DType dtype, bool masks_documents) {
  if (dtype == DType::kF32) return Failure(kUnimplemented, "elements are fp32");
  if (shape.head_dim != 64 && shape.head_dim != 128) {
    return Failure(kUnimplemented, "heads are of %lld elements, not of 64 or 128",
                   static_cast<long long>(shape.head_dim));
  }
  if (shape.cap != 0) return Failure(kUnimplemented, "scores are capped");
  if (shape.seq_len == 1) return Failure(kUnimplemented, "sequences are of one position");
  if (shape.runs != 1) {
    if (BackendStatus s = CheckRuns(shape, masks_documents); !s.ok()) return s;
  }
  constexpr int64_t kElements = 8;  // in 16 bytes
  if (shape.query_stride() % kElements != 0 || shape.key_stride() % kElements != 0) {
    return Failure(kUnimplemented, "rows of q, k and v start on no multiples of 16 bytes");
  }
  if (masks_documents && shape.documents == 0) {
    return Failure(kUnimplemented,
                   "queries see a window, or more documents than cuDNN is asked for");
  }
  const bool is_apart = shape.query_stride() != shape.heads * shape.head_dim ||
                        shape.key_stride() != shape.kv_heads * shape.head_dim;
  if (shape.documents > 0 && is_apart) {
    return Failure(kUnimplemented, "documents lie in columns of a wider matrix");
  }
  return {};
}

BackendStatus AttentionPath::Open(const Queue& queue, const DeviceOptions& options) {
  queue_ = queue;
  kind_ = options.attention;
  is_for_cudnn_ = kind_ != AttentionKind::kOwn && !options.deterministic;
  if (kind_ == AttentionKind::kOwn) {
    closed_ = Failure(kFailedPrecondition, "they are asked for");
  } else if (options.deterministic) {
    closed_ = Failure(kInvalidArgument,
                      "deterministic is asked for: cuDNN adds up gradients in no fixed order");
  } else {
    closed_ = OpenCudnnAttention(queue, &cudnn_);
  }
  return kind_ == AttentionKind::kCudnn ? Refused(closed_) : BackendStatus{};
}

BackendStatus AttentionPath::Refused(const BackendStatus& why) const {
  if (why.ok()) return {};
  return Failure(static_cast<FailureCode>(why.code),
                 "attention by cuDNN alone is asked for (WEFT_ATTENTION): %s", why.text);
}

BackendStatus AttentionPath::AskCudnn(AttentionPass pass, const AttentionShape& shape, DType dtype,
                                      bool masks_documents, int64_t scratch_bytes) {
  if (cudnn_ == nullptr) return closed_;
  if (BackendStatus s = CheckForCudnn(shape, dtype, masks_documents); !s.ok()) return s;
  if (masks_documents || shape.runs != 1) {
    // Statistics lie in an order that weft's own kernels do not know: both passes or none.
    const AttentionPass other =
        pass == AttentionPass::kForward ? AttentionPass::kBackward : AttentionPass::kForward;
    if (BackendStatus s = cudnn_->Prepare(other, shape, dtype, scratch_bytes); !s.ok()) return s;
  }
  return cudnn_->Prepare(pass, shape, dtype, scratch_bytes);
}

BackendStatus AttentionPath::Forward(const AttentionShape& shape, const AttentionTensors& tensors,
                                     View scratch) {
  const BackendStatus cudnn = AskCudnn(AttentionPass::kForward, shape, tensors.q.dtype,
                                       tensors.first_visible.data != nullptr, scratch.bytes());
  if (cudnn.ok()) return cudnn_->Forward(shape, tensors, scratch);
  if (kind_ == AttentionKind::kCudnn) return Refused(cudnn);
  return FromCuda(QueueAttention(queue_, shape, tensors), "Attention");
}

BackendStatus AttentionPath::Backward(const AttentionShape& shape, const AttentionTensors& tensors,
                                      const AttentionGradientTensors& gradients, View scratch) {
  const BackendStatus cudnn = AskCudnn(AttentionPass::kBackward, shape, tensors.q.dtype,
                                       tensors.first_visible.data != nullptr, scratch.bytes());
  if (cudnn.ok()) return cudnn_->Backward(shape, tensors, gradients, scratch);
  if (kind_ == AttentionKind::kCudnn) return Refused(cudnn);
  return FromCuda(QueueAttentionGradient(queue_, shape, tensors, gradients), "AttentionGradient");
}

void AttentionPath::Warn(const BackendStatus& forward, const BackendStatus& backward) {
  const auto warn = [&](const char* what, const BackendStatus& why) {
    warning_ = std::string(what) +
               " by weft's own kernels, which are slower, where the plan has made room for "
               "cuDNN's: " +
               why.text;
  };
  if (!backward.ok()) warn("attention's gradient is computed", backward);
  if (!forward.ok()) warn("attention is computed", forward);
  if (warning_ == said_) {
    warning_.clear();  // of another bound of documents
  } else {
    said_ = warning_;
  }
}

const char* AttentionPath::Prepare(const AttentionShape& shape, DType dtype, bool masks_documents,
                                   int64_t scratch_bytes) {
  const auto ask = [&](AttentionPass pass) {
    return AskCudnn(pass, shape, dtype, masks_documents, scratch_bytes);
  };
  const BackendStatus forward = ask(AttentionPass::kForward);
  const BackendStatus backward = ask(AttentionPass::kBackward);
  warning_.clear();
  if (is_for_cudnn_ && CheckForCudnn(shape, dtype, masks_documents).ok()) Warn(forward, backward);
  const std::string own = "kernels of weft's own";
  if (!forward.ok() && !backward.ok()) {
    description_ = own + ": " + forward.text;
  } else {
    description_ = std::string("cuDNN ") + CudnnVersion();
    if (!forward.ok()) description_ += ", its forward pass by " + own + ": " + forward.text;
    if (!backward.ok()) description_ += ", its gradient by " + own + ": " + backward.text;
  }
  return description_.c_str();
}

}  // namespace weft
