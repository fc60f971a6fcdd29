// A Device, its Updates and a Comm that pass every call on, for a test to break one of them on
// purpose: a test that cannot see a planted bug proves nothing.
#pragma once
#include "worker/backend/comm.h"
#include "worker/backend/device.h"
#include "worker/backend/started_call.h"
#include "worker/backend/updates.h"

namespace weft {

class PassingDevice : public Device {
 public:
  explicit PassingDevice(Device& inner) : inner_(inner) {}

  void* Allocate(int64_t bytes) override { return inner_.Allocate(bytes); }
  void Free(void* data, int64_t bytes) override { inner_.Free(data, bytes); }
  void CopyIn(View to, const void* from_host) override { inner_.CopyIn(to, from_host); }
  void CopyOut(void* to_host, View from) override { inner_.CopyOut(to_host, from); }
  void* AllocateHost(int64_t bytes) override { return inner_.AllocateHost(bytes); }
  void FreeHost(void* data, int64_t bytes) override { inner_.FreeHost(data, bytes); }
  void Fetch(View to, View from_host) override { inner_.Fetch(to, from_host); }
  void Store(View to_host, View from) override { inner_.Store(to_host, from); }
  void AwaitTransfers() override { inner_.AwaitTransfers(); }
  BackendStatus Synchronize() override { return inner_.Synchronize(); }
  void Replay(int64_t key, void (*queue)(void* context), void* context) override {
    inner_.Replay(key, queue, context);
  }
  const char* DescribeReplays() override { return inner_.DescribeReplays(); }
  Remark NextRemark() override { return inner_.NextRemark(); }
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void ToFp8(View x, View codes, View transposed, View scale) override {
    inner_.ToFp8(x, codes, transposed, scale);
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    inner_.Fp8MatMul(a, b, beta, c);
  }
  void Zero(View x) override { inner_.Zero(x); }
  void Copy(View to, View from) override { inner_.Copy(to, from); }
  void Add(View x, View y) override { inner_.Add(x, y); }
  void Scale(View x, double factor) override { inner_.Scale(x, factor); }
  void AddBias(View bias, View x) override { inner_.AddBias(bias, x); }
  void BiasGradient(View dy, View dbias) override { inner_.BiasGradient(dy, dbias); }
  void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y, View mean,
                 View rstd) override {
    inner_.LayerNorm(x, weight, bias, constants, y, mean, rstd);
  }
  void LayerNormGradient(View dy, View x, View weight, const NormConstants& constants, View mean,
                         View rstd, View dx, View dweight, View dbias) override {
    inner_.LayerNormGradient(dy, x, weight, constants, mean, rstd, dx, dweight, dbias);
  }
  void RmsNorm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    inner_.RmsNorm(x, weight, constants, y, rstd);
  }
  void RmsNormGradient(View dy, View x, View weight, const NormConstants& constants, View rstd,
                       View dx, View dweight) override {
    inner_.RmsNormGradient(dy, x, weight, constants, rstd, dx, dweight);
  }
  void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) override {
    inner_.Rotate(table, turn, heads, x);
  }
  void Gelu(View x, View y) override { inner_.Gelu(x, y); }
  void GeluGradient(View dy, View x, View dx) override { inner_.GeluGradient(dy, x, dx); }
  void Activate(PlainActivation f, View x, View y) override { inner_.Activate(f, x, y); }
  void ActivateGradient(PlainActivation f, View dy, View x, View dx) override {
    inner_.ActivateGradient(f, dy, x, dx);
  }
  void Linear(View x, View weight, View bias, View residual, View y) override {
    inner_.Linear(x, weight, bias, residual, y);
  }
  void LinearGelu(View x, View weight, View bias, View h, View y) override {
    inner_.LinearGelu(x, weight, bias, h, y);
  }
  void GeluLinearGradient(View dy, View weight, View h, View dh) override {
    inner_.GeluLinearGradient(dy, weight, h, dh);
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    inner_.LinearGradient(dy, x, dweight, dbias);
  }
  void Glu(Gate f, View gate, View up, View y) override { inner_.Glu(f, gate, up, y); }
  void GluGradient(Gate f, View dy, View gate, View up, View dgate, View dup) override {
    inner_.GluGradient(f, dy, gate, up, dgate, dup);
  }
  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    inner_.Embed(ids, table, first_id, positions, position_ids, out);
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override {
    inner_.EmbedGradient(ids, dout, first_id, position_ids, dtable, dpositions);
  }
  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    inner_.Attention(shape, q, k, v, first_visible, o, lse, scratch);
  }
  const char* PrepareAttention(const AttentionShape& shape, DType type, bool masks_documents,
                               View scratch) override {
    return inner_.PrepareAttention(shape, type, masks_documents, scratch);
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    inner_.AttentionGradient(shape, q, k, v, first_visible, o, lse, dout, dq, dk, dv, scratch);
  }
  void Cap(View x, double cap) override { inner_.Cap(x, cap); }
  void RowMax(View logits, View row_max) override { inner_.RowMax(logits, row_max); }
  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, const LossTerms& loss,
                 View row_sum, View target_logit) override {
    inner_.RowSumExp(logits, row_max, targets, first_id, loss, row_sum, target_logit);
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    inner_.SoftmaxGradient(row_max, row_sum, targets, first_id, loss, logits);
  }
  void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max, View row_sum,
                    View target_logit) override {
    inner_.CrossEntropy(targets, loss, logits, row_max, row_sum, target_logit);
  }
  void AddLossSum(View row_max, View row_sum, View target_logit, const LossTerms& loss,
                  View total) override {
    inner_.AddLossSum(row_max, row_sum, target_logit, loss, total);
  }
  void AddSumOfSquares(const View* xs, int64_t count, View total) override {
    inner_.AddSumOfSquares(xs, count, total);
  }
  void GradientScale(const ClipParameters& clip, View loss, View squares, View scale) override {
    inner_.GradientScale(clip, loss, squares, scale);
  }
  Updates& updates() override { return inner_.updates(); }
  AdafactorSteps& adafactor() override { return inner_.adafactor(); }
  PartNorms& part_norms() override { return inner_.part_norms(); }

 protected:
  Device& inner_;
};

class PassingUpdates : public Updates {
 public:
  explicit PassingUpdates(Updates& inner) : inner_(inner) {}

  void Adamw(const AdamwParameters& adamw, const AdamwSegment* segments, int64_t count) override {
    inner_.Adamw(adamw, segments, count);
  }
  void QuantisedAdamw(const AdamwParameters& adamw, double weight_decay, View gradient, View param,
                      const QuantisedView& exp_avg, const QuantisedView& exp_avg_sq) override {
    inner_.QuantisedAdamw(adamw, weight_decay, gradient, param, exp_avg, exp_avg_sq);
  }
  void Lion(const LionParameters& lion, View gradient, View param, View exp_avg) override {
    inner_.Lion(lion, gradient, param, exp_avg);
  }
  void Adagrad(const AdagradParameters& adagrad, View gradient, View param, View sum) override {
    inner_.Adagrad(adagrad, gradient, param, sum);
  }
  void Sgd(double lr, double weight_decay, View gradient_scale, View gradient,
           View param) override {
    inner_.Sgd(lr, weight_decay, gradient_scale, gradient, param);
  }
  void SgdMomentum(const MomentumParameters& sgd, View gradient, View param,
                   View momentum) override {
    inner_.SgdMomentum(sgd, gradient, param, momentum);
  }

 protected:
  Updates& inner_;
};

class PassingComm : public Comm {
 public:
  explicit PassingComm(Comm& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) override {
    return inner_.NewGroup(use, ranks, count, group);
  }
  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    return inner_.AllReduce(group, op, data);
  }
  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override {
    return inner_.AllReduceHost(group, op, values, count);
  }
  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    return inner_.ReduceScatter(group, op, data);
  }
  BackendStatus AllGather(int group, View data) override { return inner_.AllGather(group, data); }
  BackendStatus Exchange(const Transfer* transfers, int count) override {
    return inner_.Exchange(transfers, count);
  }
  BackendStatus Barrier(int group) override { return inner_.Barrier(group); }
  BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) override {
    return inner_.Start(collective, ticket);
  }
  BackendStatus Wait(int64_t ticket) override { return inner_.Wait(ticket); }
  BackendStatus StartBeside(const CollectiveCall& collective) override {
    return inner_.StartBeside(collective);
  }
  BackendStatus WaitBeside() override { return inner_.WaitBeside(); }
  BackendStatus FirstFailure() const override { return inner_.FirstFailure(); }
  void Interrupt(const char* why) override { inner_.Interrupt(why); }

 protected:
  Comm& inner_;
};

// Runs what is started at once, through its own blocking calls: what a test breaks in these is then
// broken in started calls too.
class AtOnceComm : public PassingComm {
 public:
  using PassingComm::PassingComm;

  BackendStatus Start(const CollectiveCall& call, int64_t* ticket) override {
    *ticket = ++started_;
    return MakeBlocking(*this, call);
  }
  BackendStatus Wait(int64_t /*ticket*/) override { return {}; }
  BackendStatus StartBeside(const CollectiveCall& call) override {
    return MakeBlocking(*this, call);
  }
  BackendStatus WaitBeside() override { return {}; }

 private:
  int64_t started_ = 0;
};

}  // namespace weft
