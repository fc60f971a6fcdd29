#include "worker/backend/cuda/attention_graphs.h"

namespace weft {
namespace {

constexpr int64_t kScratchAlignment = 256;
constexpr int64_t kArenaAlignment = 64;  // of a buffer

int64_t Aligned(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// A call's tensors as cuDNN counts them: [B, heads, positions, E].
class AttentionDims {
 public:
  AttentionDims(const AttentionShape& shape, DType dtype)
      : shape_(shape),
        type(dtype == DType::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        scores{shape.batch, shape.heads, shape.seq_len, shape.seq_len},
        statistics{shape.batch, shape.heads, shape.seq_len, 1},
        queries{shape.batch, shape.heads, shape.seq_len, shape.head_dim} {}

  // Rows [B*T, heads*E] as they are.
  GraphDims Rows(int64_t heads) const {
    return {shape_.batch, heads, shape_.seq_len, shape_.head_dim};
  }
  // `row`: elements from one row to the next.
  GraphDims RowStrides(int64_t row) const {
    return {shape_.seq_len * row, shape_.head_dim, row, 1};
  }
  // Their transpose, [B, heads, E, T].
  GraphDims Columns(int64_t heads) const {
    return {shape_.batch, heads, shape_.head_dim, shape_.seq_len};
  }
  GraphDims ColumnStrides(int64_t row) const {
    return {shape_.seq_len * row, shape_.head_dim, 1, row};
  }

 private:
  const AttentionShape& shape_;

 public:
  const cudnnDataType_t type;  // of elements
  const GraphDims scores;
  const GraphDims statistics;
  const GraphDims queries;
};

class AttentionGraph {
 public:
  AttentionGraph(CudnnGraph& graph, const AttentionShape& shape, DType dtype)
      : graph_(graph), shape_(shape), dims_(shape, dtype) {}

  void Forward() {
    const GraphTensor q = Rows(AttentionTensor::kQ, shape_.heads);
    const GraphTensor k = Columns(AttentionTensor::kK, shape_.kv_heads);
    const GraphTensor v = Rows(AttentionTensor::kV, shape_.kv_heads);
    const GraphTensor o = Rows(AttentionTensor::kO, shape_.heads);
    const GraphTensor lse = Statistics(AttentionTensor::kLse);
    const GraphTensor scores = Masked(ScaledScores(q, k));
    const GraphTensor highest =
        graph_.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, graph_.Inner(dims_.statistics));
    const GraphTensor powers =
        graph_.Pointwise(CUDNN_POINTWISE_EXP,
                         {graph_.Pointwise(CUDNN_POINTWISE_SUB, {scores, highest, {}}), {}, {}});
    const GraphTensor sums =
        graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, powers, graph_.Inner(dims_.statistics));
    const GraphTensor logs = graph_.Pointwise(CUDNN_POINTWISE_LOG, {sums, {}, {}});
    graph_.Pointwise(CUDNN_POINTWISE_ADD, {highest, logs, {}}, lse);
    const GraphTensor p = graph_.Pointwise(CUDNN_POINTWISE_DIV, {powers, sums, {}},
                                           graph_.Inner(dims_.scores, dims_.type));
    graph_.MatMul(p, v, o);
  }

  void Backward() {
    const GraphTensor q = Rows(AttentionTensor::kQ, shape_.heads);
    const GraphTensor k = Columns(AttentionTensor::kK, shape_.kv_heads);
    const GraphTensor v = Columns(AttentionTensor::kV, shape_.kv_heads);
    const GraphTensor o = Rows(AttentionTensor::kO, shape_.heads);
    const GraphTensor lse = Statistics(AttentionTensor::kLse);
    const GraphTensor dout = Rows(AttentionTensor::kDout, shape_.heads);
    const GraphTensor output_sums = OutputSums(o, dout);
    const GraphTensor p = Probabilities(q, k, lse);
    SumOverHeads(Transposed(p), dout, AttentionTensor::kDv);
    const GraphTensor ds = ScoreGradients(p, graph_.MatMul(dout, v, Scores()), output_sums);
    SumOverHeads(Transposed(ds), q, AttentionTensor::kDk);
    QueryGradient(ds, k);
  }

 private:
  GraphTensor Rows(AttentionTensor id, int64_t heads) {
    return graph_.Outer(static_cast<int64_t>(id), dims_.Rows(heads),
                        dims_.RowStrides(RowStrideOf(id)), dims_.type);
  }
  GraphTensor Columns(AttentionTensor id, int64_t heads) {
    return graph_.Outer(static_cast<int64_t>(id), dims_.Columns(heads),
                        dims_.ColumnStrides(RowStrideOf(id)), dims_.type);
  }
  int64_t RowStrideOf(AttentionTensor id) const {
    switch (id) {
      case AttentionTensor::kQ:
      case AttentionTensor::kDq:
        return shape_.query_stride();
      case AttentionTensor::kK:
      case AttentionTensor::kV:
      case AttentionTensor::kDk:
      case AttentionTensor::kDv:
        return shape_.key_stride();
      default:  // o and its gradient
        return shape_.heads * shape_.head_dim;
    }
  }
  GraphTensor Statistics(AttentionTensor id) {
    return graph_.Outer(static_cast<int64_t>(id), dims_.statistics, PackedStrides(dims_.statistics),
                        CUDNN_DATA_FLOAT);
  }
  GraphTensor Scores() { return graph_.Inner(dims_.scores); }

  // One tensor for each value on the host, however often it is used.
  const GraphTensor& Host(AttentionTensor id, GraphTensor* made) {
    if (made->descriptor == nullptr) *made = graph_.HostFloat(static_cast<int64_t>(id));
    return *made;
  }
  const GraphTensor& Scale() { return Host(AttentionTensor::kScale, &scale_); }

  GraphTensor ScaledScores(const GraphTensor& q, const GraphTensor& k) {
    return graph_.Pointwise(CUDNN_POINTWISE_MUL, {graph_.MatMul(q, k, Scores()), Scale(), {}});
  }

  // Minus infinity where the key comes after the query.
  GraphTensor Masked(const GraphTensor& scores) {
    const auto index = [&](int64_t axis) {
      return graph_.Pointwise(CUDNN_POINTWISE_GEN_INDEX, {scores, {}, {}},
                              graph_.Inner(dims_.scores, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, axis);
    };
    const GraphTensor row = index(2);
    const GraphTensor col = index(3);
    const GraphTensor visible =
        graph_.Pointwise(CUDNN_POINTWISE_CMP_GE, {row, col, {}},
                         graph_.Inner(dims_.scores, CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
    return graph_.Pointwise(
        CUDNN_POINTWISE_BINARY_SELECT,
        {scores, Host(AttentionTensor::kMinusInfinity, &minus_infinity_), visible});
  }

  // Of dO * O over a head.
  GraphTensor OutputSums(const GraphTensor& o, const GraphTensor& dout) {
    const GraphTensor products = graph_.Pointwise(CUDNN_POINTWISE_MUL, {dout, o, {}});
    const GraphTensor sums =
        graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, graph_.Inner(dims_.statistics));
    const GraphTensor& one = Host(AttentionTensor::kOne, &one_);
    return graph_.Pointwise(CUDNN_POINTWISE_MUL, {sums, one, {}},
                            Statistics(AttentionTensor::kOutputSums));
  }

  GraphTensor Probabilities(const GraphTensor& q, const GraphTensor& k, const GraphTensor& lse) {
    const GraphTensor scores = graph_.Pointwise(CUDNN_POINTWISE_SUB, {ScaledScores(q, k), lse, {}});
    return graph_.Pointwise(CUDNN_POINTWISE_EXP, {Masked(scores), {}, {}});
  }

  // (dP - sums) * P * scale
  GraphTensor ScoreGradients(const GraphTensor& p, const GraphTensor& dp,
                             const GraphTensor& output_sums) {
    const GraphTensor centred = graph_.Pointwise(CUDNN_POINTWISE_SUB, {dp, output_sums, {}});
    const GraphTensor weighted = graph_.Pointwise(CUDNN_POINTWISE_MUL, {centred, p, {}});
    return graph_.Pointwise(CUDNN_POINTWISE_MUL, {weighted, Scale(), {}});
  }

  // [T, T] of each head the other way round, rounded to elements.
  GraphTensor Transposed(const GraphTensor& x) {
    GraphDims strides = PackedStrides(dims_.scores);
    std::swap(strides[2], strides[3]);
    return graph_.Reshape(x, graph_.Inner(dims_.scores, strides, dims_.type));
  }

  // out = a b, added up over the query heads that share a key head.
  void SumOverHeads(const GraphTensor& a, const GraphTensor& b, AttentionTensor id) {
    const GraphTensor out = Rows(id, shape_.kv_heads);
    if (shape_.kv_heads == shape_.heads) {
      graph_.MatMul(a, b, out);
      return;
    }
    const GraphTensor all = graph_.MatMul(a, b, graph_.Inner(dims_.queries, dims_.type));
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, all, out);
  }

  void QueryGradient(const GraphTensor& ds, const GraphTensor& k_columns) {
    const GraphTensor k =
        graph_.Reshape(k_columns, graph_.Inner(dims_.Rows(shape_.kv_heads),
                                               dims_.RowStrides(shape_.key_stride()), dims_.type));
    const GraphTensor sums =
        graph_.Outer(static_cast<int64_t>(AttentionTensor::kDqSums), dims_.queries,
                     PackedStrides(dims_.queries), CUDNN_DATA_FLOAT);
    graph_.MatMul(ds, k, sums);
    graph_.Pointwise(CUDNN_POINTWISE_IDENTITY, {sums, {}, {}},
                     Rows(AttentionTensor::kDq, shape_.heads));
  }

  CudnnGraph& graph_;
  const AttentionShape& shape_;
  const AttentionDims dims_;
  GraphTensor scale_, minus_infinity_, one_;
};

}  // namespace

AttentionScratch::AttentionScratch(AttentionPass pass, const AttentionShape& shape) {
  const bool backward = pass == AttentionPass::kBackward;
  const int64_t rows = backward ? shape.batch * shape.heads * shape.seq_len : 0;
  output_sums_at = Aligned(rows * shape.head_dim * 4);
  workspace_at = output_sums_at + Aligned(rows * 4);
}

char* AttentionScratch::Start(View scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data);
  constexpr uintptr_t kStep = kScratchAlignment;
  return static_cast<char*>(scratch.data) + (kStep - address % kStep) % kStep;
}

int64_t CudnnScratchBytes(AttentionPass pass, const AttentionShape& shape,
                          int64_t workspace_bytes) {
  return kScratchAlignment - kArenaAlignment + AttentionScratch(pass, shape).workspace_at +
         workspace_bytes;
}

BackendStatus PlanAttention(const CudnnLibrary& library, const CudnnTarget& target,
                            AttentionPass pass, const AttentionShape& shape, DType dtype,
                            int64_t scratch_bytes, std::unique_ptr<CudnnGraph>* plan) {
  auto graph = std::make_unique<CudnnGraph>(library);
  AttentionGraph attention(*graph, shape, dtype);
  if (pass == AttentionPass::kForward) {
    attention.Forward();
  } else {
    attention.Backward();
  }
  const BackendStatus status =
      graph->Build(target, scratch_bytes - CudnnScratchBytes(pass, shape, 0));
  if (status.ok()) *plan = std::move(graph);
  return status;
}

}  // namespace weft
