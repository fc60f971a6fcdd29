// Attention of 16-bit elements: head by head in single precision, in copies that are one sequence
// and one head large. So a gradient that several heads share is rounded once, after its sum.
#include <algorithm>

#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {
namespace {

// One head of one sequence of a tensor [B*rows, heads*E].
struct HeadRows {
  int64_t first = 0;   // element
  int64_t stride = 0;  // elements between neighbouring rows
  int64_t rows = 0;
  int64_t dim = 0;
};

// `stride`: of q and its gradient, or of o and its.
HeadRows QueriesOf(const AttentionShape& shape, int64_t stride, int64_t sequence, int64_t head) {
  return {sequence * shape.query_len() * stride + head * shape.head_dim, stride, shape.query_len(),
          shape.head_dim};
}

HeadRows KeysOf(const AttentionShape& shape, int64_t sequence, int64_t kv_head) {
  return {sequence * shape.seq_len * shape.key_stride() + kv_head * shape.head_dim,
          shape.key_stride(), shape.seq_len, shape.head_dim};
}

template <typename T>
void Unpack(const T* from, const HeadRows& at, float* to) {
  for (int64_t row = 0; row < at.rows; ++row) {
    ConvertInto(from + at.first + row * at.stride, to + row * at.dim, at.dim);
  }
}

template <typename T>
void Pack(const float* from, const HeadRows& at, T* to) {
  for (int64_t row = 0; row < at.rows; ++row) {
    ConvertInto(from + row * at.dim, to + at.first + row * at.stride, at.dim);
  }
}

// Cuts `scratch` as AttentionScratchElements counts it.
struct Copies {
  Copies(const AttentionShape& shape, float* scratch) {
    float* next = scratch + AttentionScratchElements(shape, DType::kF32);
    for (float** copy : {&q, &o, &dout, &dq}) {
      *copy = next;
      next += shape.query_len() * shape.head_dim;
    }
    for (float** copy : {&k, &v, &dk, &dv, &dk_sum, &dv_sum}) {
      *copy = next;
      next += shape.seq_len * shape.head_dim;
    }
  }
  float *q, *o, *dout, *dq;
  float *k, *v, *dk, *dv, *dk_sum, *dv_sum;
};

// A head of a sequence, as an attention of its own.
struct OneHead {
  OneHead(const AttentionShape& whole, const int32_t* first_visible, int64_t sequence, int64_t head)
      : shape(whole),
        visible(first_visible == nullptr ? nullptr : first_visible + sequence * whole.query_len()),
        queries(QueriesOf(whole, whole.query_stride(), sequence, head)),
        outputs(QueriesOf(whole, whole.heads * whole.head_dim, sequence, head)),
        keys(KeysOf(whole, sequence, head / (whole.heads / whole.kv_heads))),
        lse((sequence * whole.heads + head) * whole.query_len()),
        is_first_of_kv(head % (whole.heads / whole.kv_heads) == 0),
        is_last_of_kv((head + 1) % (whole.heads / whole.kv_heads) == 0) {
    shape.batch = shape.heads = shape.kv_heads = 1;
    shape.query_row_stride = shape.key_row_stride = 0;
  }
  AttentionShape shape;
  const int32_t* visible;
  HeadRows queries, outputs, keys;
  int64_t lse;
  bool is_first_of_kv, is_last_of_kv;
};

// The whole of a OneHead.
constexpr KvHeads kOnly = {0, 1};

}  // namespace

template <typename T>
void AttentionForwardOf(const AttentionShape& shape, const KvHeads& part,
                        const int32_t* first_visible, const AttentionViewsOf<T>& views,
                        float* scratch) {
  const Copies copies(shape, scratch);
  const int64_t sharing = shape.heads / shape.kv_heads;
  for (int64_t at = part.first * sharing; at < part.end * sharing; ++at) {
    const OneHead one(shape, first_visible, at / shape.heads, at % shape.heads);
    if (one.is_first_of_kv) {
      Unpack(views.k, one.keys, copies.k);
      Unpack(views.v, one.keys, copies.v);
    }
    Unpack(views.q, one.queries, copies.q);
    AttentionForwardOf<float>(one.shape, kOnly, one.visible,
                              {copies.q, copies.k, copies.v, copies.o, views.lse + one.lse},
                              scratch);
    Pack(copies.o, one.outputs, views.o);
  }
}

template <typename T>
void AttentionBackwardOf(const AttentionShape& shape, const KvHeads& part,
                         const int32_t* first_visible, const AttentionGradientViewsOf<T>& views,
                         float* scratch) {
  const Copies copies(shape, scratch);
  const int64_t kv_elements = shape.seq_len * shape.head_dim;
  const int64_t sharing = shape.heads / shape.kv_heads;
  for (int64_t at = part.first * sharing; at < part.end * sharing; ++at) {
    const OneHead one(shape, first_visible, at / shape.heads, at % shape.heads);
    if (one.is_first_of_kv) {
      Unpack(views.k, one.keys, copies.k);
      Unpack(views.v, one.keys, copies.v);
      std::fill_n(copies.dk_sum, kv_elements, 0.0F);
      std::fill_n(copies.dv_sum, kv_elements, 0.0F);
    }
    Unpack(views.q, one.queries, copies.q);
    Unpack(views.o, one.outputs, copies.o);
    Unpack(views.dout, one.outputs, copies.dout);
    AttentionBackwardOf<float>(one.shape, kOnly, one.visible,
                               {copies.q, copies.k, copies.v, copies.o, views.lse + one.lse,
                                copies.dout, copies.dq, copies.dk, copies.dv},
                               scratch);
    Pack(copies.dq, one.queries, views.dq);
    AddInto(copies.dk, copies.dk_sum, kv_elements);
    AddInto(copies.dv, copies.dv_sum, kv_elements);
    if (!one.is_last_of_kv) continue;
    Pack(copies.dk_sum, one.keys, views.dk);
    Pack(copies.dv_sum, one.keys, views.dv);
  }
}

#define WEFT_INSTANTIATE(T)                                                                   \
  template void AttentionForwardOf<T>(const AttentionShape&, const KvHeads&, const int32_t*,  \
                                      const AttentionViewsOf<T>&, float*);                    \
  template void AttentionBackwardOf<T>(const AttentionShape&, const KvHeads&, const int32_t*, \
                                       const AttentionGradientViewsOf<T>&, float*);
WEFT_INSTANTIATE(Bf16)
WEFT_INSTANTIATE(Fp16)
#undef WEFT_INSTANTIATE

}  // namespace weft
