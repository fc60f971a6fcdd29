#include "tests/parity/planted.h"

namespace weft {
namespace {

// What the two wrappers of a rank tell each other.
struct Watch {
  bool attention_gradient_is_last = false;  // no all-reduce since
};

class PlantedDevice final : public Device {
 public:
  PlantedDevice(const ParityJob& parity, int rank, Device& inner, std::shared_ptr<Watch> watch)
      : bug_(parity.bug),
        rank_(rank),
        num_microbatches_(parity.layout.num_microbatches),
        inner_(inner),
        watch_(std::move(watch)) {}

  void BiasGradient(View dy, View dbias) override {
    inner_.BiasGradient(dy, dbias);
    if (bug_ != PlantedBug::kDoubledGradient || rank_ != 0) return;
    if (doubled_ == nullptr) doubled_ = dbias.data;
    if (doubled_ == dbias.data) inner_.BiasGradient(dy, dbias);
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id, double scale,
                       View logits) override {
    const bool second_of_step = softmax_gradients_++ % num_microbatches_ == 1;
    if (bug_ == PlantedBug::kMicrobatchWeight && second_of_step) scale *= 1.01;
    inner_.SoftmaxGradient(row_max, row_sum, targets, first_id, scale, logits);
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View o, View lse,
                         View dout, View dq, View dk, View dv, View scratch) override {
    inner_.AttentionGradient(shape, q, k, v, o, lse, dout, dq, dk, dv, scratch);
    watch_->attention_gradient_is_last = true;
  }

  void* Allocate(int64_t bytes) override { return inner_.Allocate(bytes); }
  void Free(void* data, int64_t bytes) override { inner_.Free(data, bytes); }
  void CopyIn(View to, const void* from_host) override { inner_.CopyIn(to, from_host); }
  void CopyOut(void* to_host, View from) override { inner_.CopyOut(to_host, from); }
  BackendStatus Synchronize() override { return inner_.Synchronize(); }
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void Zero(View x) override { inner_.Zero(x); }
  void Copy(View to, View from) override { inner_.Copy(to, from); }
  void Add(View x, View y) override { inner_.Add(x, y); }
  void Scale(View x, double factor) override { inner_.Scale(x, factor); }
  void AddBias(View bias, View x) override { inner_.AddBias(bias, x); }
  void LayerNorm(View x, View weight, View bias, double eps, View y, View mean,
                 View rstd) override {
    inner_.LayerNorm(x, weight, bias, eps, y, mean, rstd);
  }
  void LayerNormGradient(View dy, View x, View weight, View mean, View rstd, View dx, View dweight,
                         View dbias) override {
    inner_.LayerNormGradient(dy, x, weight, mean, rstd, dx, dweight, dbias);
  }
  void Gelu(View x, View y) override { inner_.Gelu(x, y); }
  void GeluGradient(View dy, View x, View dx) override { inner_.GeluGradient(dy, x, dx); }
  void Embed(View ids, View table, int64_t first_id, const View* positions, int64_t seq_len,
             View out) override {
    inner_.Embed(ids, table, first_id, positions, seq_len, out);
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, int64_t seq_len, View dtable,
                     const View* dpositions) override {
    inner_.EmbedGradient(ids, dout, first_id, seq_len, dtable, dpositions);
  }
  void Attention(const AttentionShape& shape, View q, View k, View v, View o, View lse,
                 View scratch) override {
    inner_.Attention(shape, q, k, v, o, lse, scratch);
  }
  void RowMax(View logits, View row_max) override { inner_.RowMax(logits, row_max); }
  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, View row_sum,
                 View target_logit) override {
    inner_.RowSumExp(logits, row_max, targets, first_id, row_sum, target_logit);
  }
  double LossSum(View row_max, View row_sum, View target_logit) override {
    return inner_.LossSum(row_max, row_sum, target_logit);
  }
  double SumOfSquares(View x) override { return inner_.SumOfSquares(x); }
  void Adamw(const AdamwParameters& adamw, View gradient, View param, View exp_avg,
             View exp_avg_sq) override {
    inner_.Adamw(adamw, gradient, param, exp_avg, exp_avg_sq);
  }
  void Sgd(double lr, double weight_decay, double gradient_scale, View gradient,
           View param) override {
    inner_.Sgd(lr, weight_decay, gradient_scale, gradient, param);
  }

 private:
  const PlantedBug bug_;
  const int rank_;
  const int64_t num_microbatches_;
  Device& inner_;
  const std::shared_ptr<Watch> watch_;
  const void* doubled_ = nullptr;
  int64_t softmax_gradients_ = 0;
};

class PlantedComm final : public Comm {
 public:
  PlantedComm(const ParityJob& parity, Comm& inner, std::shared_ptr<Watch> watch)
      : bug_(parity.bug),
        embedding_elements_(parity.job.model.vocab_size * parity.job.model.hidden_size),
        inner_(inner),
        watch_(std::move(watch)) {}

  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    const bool of_attention = watch_->attention_gradient_is_last;
    watch_->attention_gradient_is_last = false;
    if (bug_ == PlantedBug::kTensorNotReduced && of_attention) return {};
    if (bug_ == PlantedBug::kTiedNotReduced && data.elements() == embedding_elements_) return {};
    return inner_.AllReduce(group, op, data);
  }
  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override {
    const double own_norm_squared = count == 3 ? values[1] : 0;  // {loss, norm^2, stop}
    const BackendStatus status = inner_.AllReduceHost(group, op, values, count);
    if (bug_ == PlantedBug::kNormNotReduced && count == 3) values[1] = own_norm_squared;
    return status;
  }

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  BackendStatus NewGroup(int color, const int* ranks, int count, int* group) override {
    return inner_.NewGroup(color, ranks, count, group);
  }
  BackendStatus Exchange(const Transfer* transfers, int count) override {
    return inner_.Exchange(transfers, count);
  }
  BackendStatus Barrier(int group) override { return inner_.Barrier(group); }
  void Interrupt(const char* why) override { inner_.Interrupt(why); }

 private:
  const PlantedBug bug_;
  const int64_t embedding_elements_;
  Comm& inner_;
  const std::shared_ptr<Watch> watch_;
};

}  // namespace

PlantedBackend Plant(const ParityJob& parity, Device& device, Comm& comm) {
  const auto watch = std::make_shared<Watch>();
  return {std::make_unique<PlantedDevice>(parity, comm.rank(), device, watch),
          std::make_unique<PlantedComm>(parity, comm, watch)};
}

}  // namespace weft
