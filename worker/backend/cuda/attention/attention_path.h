// AttentionPath chooses which way an attention call takes on this device, and says why: cuDNN where
// it serves, else the kernels of weft's own (attention.cu), which take every call and repeat their
// bits.
#pragma once
#include <memory>
#include <string>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/attention/attention_cudnn.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/device.h"

namespace weft {

// Whether cuDNN may be asked for such calls at all: else Unimplemented, and what keeps it out.
// Pure.
BackendStatus CheckForCudnn(const AttentionShape& shape, DType dtype, bool masks_documents);

class AttentionPath {
 public:
  // Without cuDNN the device still works: only AttentionKind::kCudnn makes that a failure.
  // InvalidArgument if options ask for it and for deterministic results.
  BackendStatus Open(const Queue& queue, const DeviceOptions& options);

  // Queue the work. Fail if it cannot be queued, or if it is not for cuDNN and nothing else is
  // allowed.
  BackendStatus Forward(const AttentionShape& shape, const AttentionTensors& tensors, View scratch);
  BackendStatus Backward(const AttentionShape& shape, const AttentionTensors& tensors,
                         const AttentionGradientTensors& gradients, View scratch);

  // Returns what Device::PrepareAttention says; valid until the next call.
  const char* Prepare(const AttentionShape& shape, DType dtype, bool masks_documents,
                      int64_t scratch_bytes);
  // Says why cuDNN does not compute the calls that were last prepared, where the plan has made room
  // for it. Empty: it does, or was not to, or those prepared before gave the same reason.
  const std::string& warning() const { return warning_; }

 private:
  void Warn(const BackendStatus& forward, const BackendStatus& backward);
  // OK: cuDNN takes such a call, and what it needs is compiled. Else why not.
  BackendStatus AskCudnn(AttentionPass pass, const AttentionShape& shape, DType dtype,
                         bool masks_documents, int64_t scratch_bytes);
  BackendStatus Refused(const BackendStatus& why) const;

  Queue queue_;
  AttentionKind kind_ = AttentionKind::kAuto;
  bool is_for_cudnn_ = true;  // by what was asked for
  BackendStatus closed_;      // why there is no cudnn_
  std::unique_ptr<CudnnAttention> cudnn_;
  std::string description_;
  std::string warning_;
  std::string said_;  // the warning before it
};

}  // namespace weft
