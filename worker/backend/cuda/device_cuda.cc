#include "worker/backend/cuda/device_cuda.h"

#include <cstring>
#include <deque>
#include <functional>
#include <string>

#include "worker/backend/adafactor_steps.h"
#include "worker/backend/cuda/attention/attention_path.h"
#include "worker/backend/cuda/gemm.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/part_norms.h"
#include "worker/backend/cuda/kernels/updates.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/cuda/runtime/device_memory.h"
#include "worker/backend/cuda/runtime/graphs.h"
#include "worker/backend/cuda/runtime/host_block.h"
#include "worker/backend/cuda/runtime/staging.h"
#include "worker/backend/failure.h"
#include "worker/backend/fp8.h"
#include "worker/backend/operands.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

constexpr int64_t kSumsAlignment = 256;

// Checks a product with what it has of an epilogue. What a layer adds to is of single precision.
bool IsLinear(const GemmCall& call) {
  const View c = call.c;
  const auto is_like_c = [&](View x) {
    return IsMatrix(x, c.rows, c.cols, c.dtype) && x.data != c.data;
  };
  return FitsMatMul(call.a, call.transpose_a, call.b, call.transpose_b, call.beta, c) &&
         c.dtype == (call.beta == 0 ? call.a.dtype : DType::kF32) &&
         (c.is_contiguous() || !call.has_epilogue()) &&
         (!call.has_bias_gradient() ||
          (call.a.is_contiguous() && IsVector(call.bias_gradient, c.rows))) &&
         (call.bias.data == nullptr || IsVector(call.bias, c.cols, c.dtype)) &&
         (call.residual.data == nullptr || is_like_c(call.residual)) &&
         (call.gelu == GemmGelu::kNone || is_like_c(call.h));
}

// `host`: memory of AllocateHost; null: there is none.
bool IsOnHost(const HostBlock* host, View x) {
  return host != nullptr && host->Holds(x.data);
}

// Tells whether one view is on the device and one in that memory, so that one can be copied to the
// other.
bool IsTransfer(const HostBlock* host, View on_device, View on_host) {
  return IsOnHost(host, on_host) && !IsOnHost(host, on_device) && on_device.data != nullptr &&
         on_device.dtype == on_host.dtype && on_device.elements() == on_host.elements() &&
         on_device.is_contiguous() && on_host.is_contiguous();
}

// Returns as many floats as `dbias` has elements, at the end of the scratch memory.
View SumsOf(const Queue& queue, View dbias) {
  if (dbias.data == nullptr) return {};
  const int64_t at = (kScratchBytes - dbias.bytes()) / kSumsAlignment * kSumsAlignment;
  return {static_cast<char*>(queue.scratch) + at, 1, dbias.elements(), DType::kF32};
}

// Each operation asks operands.h first whether its operands fit together.
class CudaDevice final : public Device {
 public:
  ~CudaDevice() override {
    graphs_.reset();
    gemm_.reset();
    attention_ = {};
    staging_.reset();
    host_.reset();
    memory_.FreeAll();
    cudaFree(workspace_);
    cudaFree(queue_.scratch);
    if (queue_.stream != nullptr) cudaStreamDestroy(queue_.stream);
  }

  BackendStatus Open(const DeviceOptions& options, int index) {
    queue_.is_of_only_device = !options.share_devices && index != options.local_index;
    queue_.scratch_bytes = kScratchBytes;
    const struct {
      const char* what;
      cudaError_t code;
    } steps[] = {
        {"cudaSetDevice", cudaSetDevice(index)},
        {"making a stream", cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking)},
        {"allocating scratch memory",
         cudaMalloc(&queue_.scratch, static_cast<size_t>(kScratchBytes))},
        {"allocating the workspace of matrix products",
         cudaMalloc(&workspace_, static_cast<size_t>(kGemmWorkspaceBytes))},
    };
    for (const auto& [what, code] : steps) {
      if (code != cudaSuccess) return FromCuda(code, what);
    }
    graphs_ = std::make_unique<Graphs>(queue_.stream, options.replays);
    queue_.graphs = graphs_.get();
    staging_ = std::make_unique<Staging>(queue_.stream);
    if (BackendStatus s = FromCuda(staging_->Open(), "allocating pinned memory"); !s.ok()) return s;
    if (BackendStatus s = attention_.Open(queue_, options); !s.ok()) return s;
    return OpenGemm(
        {queue_, workspace_, options.deterministic, options.fp8, options.fp8_fast_accumulation},
        &gemm_);
  }

  const Queue& queue() const { return queue_; }

  void* Allocate(int64_t bytes) override {
    if (graphs_->Refuses("allocating memory")) return nullptr;
    void* data = nullptr;
    failure_.Keep(memory_.Allocate(bytes, &data));
    return data;
  }
  int64_t UsedBytes() override {
    int64_t bytes = 0;
    failure_.Keep(DeviceMemory::UsedBytes(&bytes));
    return bytes;
  }
  void Free(void* data, int64_t /*bytes*/) override {
    if (!graphs_->Refuses("freeing memory")) failure_.Keep(memory_.Free(data));
  }

  void CopyIn(View to, const void* from_host) override {
    if (!failure_.Require(to.is_contiguous(), "CopyIn", to)) return;
    if (to.elements() == 0 || graphs_->Refuses("CopyIn")) return;
    if (IsOnHost(host_.get(), to)) {
      CopyOnHost(to.data, from_host, to.bytes());
    } else {
      Check(staging_->In(to.data, from_host, to.bytes()), "copy to the device");
    }
  }
  void CopyOut(void* to_host, View from) override {
    if (!failure_.Require(from.is_contiguous(), "CopyOut", from)) return;
    if (from.elements() == 0 || graphs_->Refuses("CopyOut")) return;
    if (IsOnHost(host_.get(), from)) {
      CopyOnHost(to_host, from.data, from.bytes());
    } else {
      Check(staging_->Out(to_host, from.data, from.bytes()), "copy from the device");
    }
  }

  void* AllocateHost(int64_t bytes) override {
    if (host_ != nullptr || bytes <= 0 || graphs_->Refuses("allocating memory")) return nullptr;
    host_ = std::make_unique<HostBlock>(queue_.stream);
    const cudaError_t code = host_->Open(bytes);
    if (code == cudaSuccess) return host_->data();
    cudaGetLastError();  // running out of memory is no lasting error
    Check(code, "allocating pinned memory for what is offloaded");
    host_.reset();
    return nullptr;
  }
  void FreeHost(void* data, int64_t /*bytes*/) override {
    if (graphs_->Refuses("freeing memory")) return;
    if (host_ != nullptr && host_->data() == data) host_.reset();
  }
  void Fetch(View to, View from_host) override {
    if (!failure_.Require(IsTransfer(host_.get(), to, from_host), "Fetch", to) ||
        graphs_->Refuses("Fetch"))
      return;
    Check(host_->Fetch(to.data, from_host.data, to.bytes()), "Fetch");
  }
  void Store(View to_host, View from) override {
    if (!failure_.Require(IsTransfer(host_.get(), from, to_host), "Store", from) ||
        graphs_->Refuses("Store"))
      return;
    Check(host_->Store(to_host.data, from.data, from.bytes()), "Store");
  }
  void AwaitTransfers() override {
    if (host_ == nullptr || graphs_->Refuses("AwaitTransfers")) return;
    Check(host_->Await(), "AwaitTransfers");
  }

  BackendStatus Synchronize() override {
    if (graphs_->Refuses("Synchronize")) return {};
    AwaitTransfers();
    Check(cudaStreamSynchronize(queue_.stream), "the work that was queued");
    return failure_.Take();
  }

  void Replay(int64_t key, void (*work)(void* context), void* context) override {
    graphs_->Replay(key, work, context, failure_);
  }
  const char* DescribeReplays() override { return graphs_->Describe(); }
  Remark NextRemark() override {
    if (std::string report = gemm_->TakeReport(); !report.empty()) {
      remarks_.push_back({.text = std::move(report)});
    }
    if (remarks_.empty()) return {};
    remark_ = std::move(remarks_.front());
    remarks_.pop_front();
    return {.text = remark_.text.c_str(), .is_warning = remark_.is_warning};
  }

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    const GemmCall call = {.a = a,
                           .transpose_a = transpose_a,
                           .b = b,
                           .transpose_b = transpose_b,
                           .beta = beta,
                           .c = c};
    if (failure_.Require(FitsMatMul(a, transpose_a, b, transpose_b, beta, c), "MatMul", c))
      failure_.Keep(gemm_->Run(call));
  }
  void ToFp8(View x, View codes, View transposed, View scale) override {
    if (!failure_.Require(FitsToFp8(x, codes, transposed, scale), "ToFp8", x)) return;
    Check(QueueToFp8(queue_, x, codes, transposed, scale), "ToFp8");
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    if (!failure_.Require(FitsFp8MatMul(a, b, beta, c), "Fp8MatMul", c)) return;
    failure_.Keep(gemm_->Run({.a = a.codes,
                              .b = b.codes,
                              .transpose_b = Transpose::kYes,
                              .beta = beta,
                              .c = c,
                              .scale_a = a.scale.data,
                              .scale_b = b.scale.data}));
  }

  void Zero(View x) override {
    if (!failure_.Require(x.is_contiguous(), "Zero", x)) return;
    if (x.elements() == 0) return;
    Check(cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), queue_.stream), "Zero");
  }
  void Copy(View to, View from) override {
    if (!failure_.Require(FitsCopy(to, from), "Copy", to)) return;
    if (to.elements() == 0 || to.data == from.data) return;
    if (to.dtype != from.dtype) {
      Check(QueueConvert(queue_, from, to), "Copy");
    } else {
      Check(QueueCopy(queue_, from, to), "Copy");
    }
  }
  void Add(View x, View y) override {
    if (!failure_.Require(FitsAdd(x, y), "Add", y)) return;
    Check(QueueAdd(queue_, x, y), "Add");
  }
  void Scale(View x, double factor) override {
    if (!failure_.Require(IsActivation(x), "Scale", x)) return;
    Check(QueueScale(queue_, factor, x), "Scale");
  }
  void AddBias(View bias, View x) override {
    if (!failure_.Require(FitsAddBias(bias, x), "AddBias", x)) return;
    Check(QueueAddBias(queue_, bias, x), "AddBias");
  }
  void BiasGradient(View dy, View dbias) override {
    if (!failure_.Require(FitsBiasGradient(dy, dbias), "BiasGradient", dy)) return;
    Check(QueueBiasGradient(queue_, dy, dbias), "BiasGradient");
  }

  void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y, View mean,
                 View rstd) override {
    if (!failure_.Require(FitsLayerNorm(x, weight, bias, y, mean, rstd), "LayerNorm", x)) return;
    Check(QueueLayerNorm(queue_, x, weight, bias, constants, y, mean, rstd), "LayerNorm");
  }
  void LayerNormGradient(View dy, View x, View weight, const NormConstants& constants, View mean,
                         View rstd, View dx, View dweight, View dbias) override {
    if (!failure_.Require(FitsLayerNormGradient(dy, x, weight, mean, rstd, dx, dweight, dbias),
                          "LayerNormGradient", x)) {
      return;
    }
    Check(QueueLayerNormGradient(queue_, dy, x, weight, constants, mean, rstd, dx, dweight, dbias),
          "LayerNormGradient");
  }

  void RmsNorm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    if (!failure_.Require(FitsRmsNorm(x, weight, y, rstd), "RmsNorm", x)) return;
    Check(QueueRmsNorm(queue_, x, weight, constants, y, rstd), "RmsNorm");
  }
  void RmsNormGradient(View dy, View x, View weight, const NormConstants& constants, View rstd,
                       View dx, View dweight) override {
    if (!failure_.Require(FitsRmsNormGradient(dy, x, weight, rstd, dx, dweight), "RmsNormGradient",
                          x)) {
      return;
    }
    Check(QueueRmsNormGradient(queue_, dy, x, weight, constants, rstd, dx, dweight),
          "RmsNormGradient");
  }
  void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) override {
    if (!failure_.Require(FitsRotate(table, heads, x), "Rotate", x)) return;
    Check(QueueRotate(queue_, table, turn, heads, x), "Rotate");
  }
  void Gelu(View x, View y) override {
    if (!failure_.Require(SameShape(x, {y}), "Gelu", x)) return;
    Check(QueueGelu(queue_, x, y), "Gelu");
  }
  void GeluGradient(View dy, View x, View dx) override {
    if (!failure_.Require(SameShape(x, {dy, dx}), "GeluGradient", x)) return;
    Check(QueueGeluGradient(queue_, dy, x, dx), "GeluGradient");
  }
  void Activate(PlainActivation f, View x, View y) override {
    if (!failure_.Require(SameShape(x, {y}), "Activate", x)) return;
    Check(QueueActivate(queue_, f, x, y), "Activate");
  }
  void ActivateGradient(PlainActivation f, View dy, View x, View dx) override {
    if (!failure_.Require(SameShape(x, {dy, dx}), "ActivateGradient", x)) return;
    Check(QueueActivateGradient(queue_, f, dy, x, dx), "ActivateGradient");
  }

  void Linear(View x, View weight, View bias, View residual, View y) override {
    const GemmCall call = {.a = x,
                           .b = weight,
                           .transpose_b = Transpose::kYes,
                           .c = y,
                           .bias = bias,
                           .residual = residual};
    Multiply(call, "Linear",
             [&](const GemmCall&) { Device::Linear(x, weight, bias, residual, y); });
  }
  void LinearGelu(View x, View weight, View bias, View h, View y) override {
    const GemmCall call = {.a = x,
                           .b = weight,
                           .transpose_b = Transpose::kYes,
                           .c = y,
                           .bias = bias,
                           .gelu = GemmGelu::kForward,
                           .h = h};
    Multiply(call, "LinearGelu",
             [&](const GemmCall&) { Device::LinearGelu(x, weight, bias, h, y); });
  }
  void GeluLinearGradient(View dy, View weight, View h, View dh) override {
    const GemmCall call = {.a = dy, .b = weight, .c = dh, .gelu = GemmGelu::kGradient, .h = h};
    Multiply(call, "GeluLinearGradient",
             [&](const GemmCall&) { Device::GeluLinearGradient(dy, weight, h, dh); });
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    const GemmCall call = {.a = dy,
                           .transpose_a = Transpose::kYes,
                           .b = x,
                           .beta = 1,
                           .c = dweight,
                           .bias_gradient = dbias,
                           .sums = SumsOf(queue_, dbias)};
    Multiply(call, "LinearGradient", [this](const GemmCall& made) {
      Device::LinearGradient(made.a, made.b, made.c, made.bias_gradient);
    });
  }

  void Glu(Gate f, View gate, View up, View y) override {
    if (!failure_.Require(SameRows(gate, {up, y}), "Glu", gate)) return;
    Check(QueueGlu(queue_, f, gate, up, y), "Glu");
  }
  void GluGradient(Gate f, View dy, View gate, View up, View dgate, View dup) override {
    if (!failure_.Require(FitsGluGradient(dy, gate, up, dgate, dup), "GluGradient", gate)) {
      return;
    }
    Check(QueueGluGradient(queue_, f, dy, gate, up, dgate, dup), "GluGradient");
  }

  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    if (!failure_.Require(FitsEmbed(ids, table, positions, position_ids, out), "Embed", out)) {
      return;
    }
    Check(QueueEmbed(queue_, ids, table, first_id, positions, position_ids, out), "Embed");
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override {
    if (!failure_.Require(FitsEmbedGradient(ids, dout, position_ids, dtable, dpositions),
                          "EmbedGradient", dout)) {
      return;
    }
    Check(QueueEmbedGradient(queue_, ids, dout, first_id, position_ids, dtable, dpositions),
          "EmbedGradient");
  }

  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    if (!failure_.Require(FitsAttention(shape, {q}, {k, v}, {o}, first_visible, lse), "Attention",
                          q)) {
      return;
    }
    failure_.Keep(attention_.Forward(shape, {q, k, v, first_visible, o, lse}, scratch));
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    if (!failure_.Require(
            FitsAttention(shape, {q, dq}, {k, v, dk, dv}, {o, dout}, first_visible, lse),
            "AttentionGradient", q)) {
      return;
    }
    failure_.Keep(
        attention_.Backward(shape, {q, k, v, first_visible, o, lse}, {dout, dq, dk, dv}, scratch));
  }
  const char* PrepareAttention(const AttentionShape& shape, DType type, bool masks_documents,
                               View scratch) override {
    const char* const by = attention_.Prepare(shape, type, masks_documents, scratch.bytes());
    if (!attention_.warning().empty()) remarks_.push_back({attention_.warning(), true});
    return by;
  }

  void Cap(View x, double cap) override {
    if (!failure_.Require(SameRows(x, {}) && cap > 0, "Cap", x)) return;
    Check(QueueCap(queue_, x, cap), "Cap");
  }
  void RowMax(View logits, View row_max) override {
    if (!failure_.Require(FitsRowMax(logits, row_max), "RowMax", logits)) return;
    Check(QueueRowMax(queue_, logits, row_max), "RowMax");
  }
  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, const LossTerms& loss,
                 View row_sum, View target_logit) override {
    const bool fits = FitsRowSums(logits, row_max, targets, row_sum, target_logit);
    if (!failure_.Require(fits, "RowSumExp", logits)) return;
    Check(QueueRowSumExp(queue_, logits, row_max, targets, first_id, loss, row_sum, target_logit),
          "RowSumExp");
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    if (!failure_.Require(FitsSoftmaxGradient(row_max, row_sum, targets, logits), "SoftmaxGradient",
                          logits)) {
      return;
    }
    Check(QueueSoftmaxGradient(queue_, row_max, row_sum, targets, first_id, loss, logits),
          "SoftmaxGradient");
  }
  void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max, View row_sum,
                    View target_logit) override {
    if (!failure_.Require(FitsRowSums(logits, row_max, targets, row_sum, target_logit),
                          "CrossEntropy", logits)) {
      return;
    }
    Check(QueueCrossEntropy(queue_, targets, loss, logits, row_max, row_sum, target_logit),
          "CrossEntropy");
  }
  void AddLossSum(View row_max, View row_sum, View target_logit, const LossTerms& loss,
                  View total) override {
    if (!failure_.Require(FitsAddLossSum(row_max, row_sum, target_logit, total), "AddLossSum",
                          row_max)) {
      return;
    }
    Check(QueueAddLossSum(queue_, row_max, row_sum, target_logit, loss, total), "AddLossSum");
  }
  void AddSumOfSquares(const View* xs, int64_t count, View total) override {
    const View* const unfit = FirstUnfit(xs, count, total);
    if (unfit != nullptr) return void(failure_.Require(false, "AddSumOfSquares", *unfit));
    Check(QueueAddSumOfSquares(queue_, xs, count, total), "AddSumOfSquares");
  }
  void GradientScale(const ClipParameters& clip, View loss, View squares, View scale) override {
    if (!failure_.Require(FitsGradientScale(loss, squares, scale), "GradientScale", loss)) return;
    Check(QueueGradientScale(queue_, clip, loss, squares, scale), "GradientScale");
  }

  Updates& updates() override { return *updates_; }
  AdafactorSteps& adafactor() override { return *adafactor_; }
  PartNorms& part_norms() override { return *part_norms_; }

 private:
  void Check(cudaError_t code, const char* what) { KeepFailure(code, what, failure_); }

  // Queues the product as one kernel, or by `apart`, which queues the same as several.
  template <typename Apart>
  void Multiply(const GemmCall& call, const char* operation, const Apart& apart) {
    if (!failure_.Require(IsLinear(call), operation, call.c)) return;
    if (!call.has_epilogue() || gemm_->Fuses(call, std::ref(apart))) {
      failure_.Keep(gemm_->Run(call));
    } else {
      apart(call);
    }
  }

  void CopyOnHost(void* to, const void* from, int64_t bytes) {
    Check(host_->Synchronize(), "copy of what is offloaded");
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  DeviceMemory memory_;
  Queue queue_;
  void* workspace_ = nullptr;  // of gemm_
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<HostBlock> host_;  // null: nothing is offloaded
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Graphs> graphs_;
  AttentionPath attention_;
  FirstFailure failure_;
  const std::unique_ptr<Updates> updates_ = MakeCudaUpdates(queue_, failure_);
  const std::unique_ptr<AdafactorSteps> adafactor_ = MakeCudaAdafactor(queue_, failure_);
  const std::unique_ptr<PartNorms> part_norms_ = MakeCudaPartNorms(queue_, failure_);
  struct KeptRemark {
    std::string text;
    bool is_warning = false;
  };
  std::deque<KeptRemark> remarks_;  // not asked for yet
  KeptRemark remark_;               // asked for last
};

}  // namespace

BackendStatus ChooseDevice(const DeviceOptions& options, int count, int* index) {
  if (count == 0) return FromCuda(cudaErrorNoDevice, "opening a device");
  *index = options.local_index;
  if (count == 1) *index = 0;
  if (options.share_devices) *index %= count;
  if (*index >= 0 && *index < count) return {};
  return Failure(kInvalidArgument,
                 "cuda device %d does not exist; this host has %d: start at most as many workers "
                 "on it",
                 *index, count);
}

BackendStatus OpenCudaDevice(const DeviceOptions& options, std::unique_ptr<Device>* device) {
  int count = 0;
  if (BackendStatus s = FromCuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount"); !s.ok()) {
    return s;
  }
  int index = 0;
  if (BackendStatus s = ChooseDevice(options, count, &index); !s.ok()) return s;
  auto opened = std::make_unique<CudaDevice>();
  if (BackendStatus s = opened->Open(options, index); !s.ok()) return s;
  *device = std::move(opened);
  return {};
}

Queue QueueOf(const Device& device) {
  return static_cast<const CudaDevice&>(device).queue();
}

}  // namespace weft
