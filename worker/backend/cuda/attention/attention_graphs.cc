#include "worker/backend/cuda/attention/attention_graphs.h"

namespace weft {
namespace {

constexpr int64_t kScratchAlignment = 256;
constexpr int64_t kArenaAlignment = 64;  // of a buffer

int64_t Aligned(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Returns how many k has, or v, as far as the part sees them.
int64_t KeyElements(const AttentionShape& shape, const AttentionPart& part) {
  return shape.batch * part.keys * shape.kv_heads * shape.head_dim;
}

// A side of a part: the tensors of its queries or of its keys, of `len` positions each sequence.
struct Side {
  int64_t heads = 0;
  int64_t len = 0;
  int64_t whole_len = 0;  // of which they are a part, in memory
  GraphTensor offsets = {};
};

// A part's tensors as cuDNN counts them: [B, heads, positions, E]. Documents take the place of
// sequences.
class AttentionDims {
 public:
  AttentionDims(const AttentionShape& shape, const AttentionPart& part, DType dtype)
      : shape_(shape),
        batch(shape.documents > 0 ? shape.documents : shape.batch),
        type(dtype == DType::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        scores{batch, shape.heads, part.queries, part.keys},
        statistics{batch, shape.heads, part.queries, 1},
        queries{batch, shape.heads, part.queries, shape.head_dim},
        keys_by_query_head{batch, shape.heads, part.keys, shape.head_dim} {}

  // Rows [B*whole_len, heads*E] as they are.
  GraphDims Rows(const Side& side) const { return {batch, side.heads, side.len, shape_.head_dim}; }
  // `row`: elements from one row to the next.
  GraphDims RowStrides(const Side& side, int64_t row) const {
    return {side.whole_len * row, shape_.head_dim, row, 1};
  }
  // Their transpose, [B, heads, E, len].
  GraphDims Columns(const Side& side) const {
    return {batch, side.heads, shape_.head_dim, side.len};
  }
  GraphDims ColumnStrides(const Side& side, int64_t row) const {
    return {side.whole_len * row, shape_.head_dim, 1, row};
  }
  GraphDims StatisticStrides() const {
    if (shape_.documents == 0) return PackedStrides(statistics);
    return {shape_.seq_len * shape_.heads, 1, shape_.heads, 1};
  }
  GraphDims DqSumStrides() const {
    const int64_t row = shape_.heads * shape_.head_dim;
    if (shape_.documents == 0) return PackedStrides(queries);
    return {shape_.seq_len * row, shape_.head_dim, row, 1};
  }

 private:
  const AttentionShape& shape_;

 public:
  const int64_t batch;
  const cudnnDataType_t type;  // of elements
  const GraphDims scores;
  const GraphDims statistics;
  const GraphDims queries;
  const GraphDims keys_by_query_head;
};

class AttentionGraph {
 public:
  AttentionGraph(CudnnGraph& graph, const AttentionShape& shape, const AttentionPart& part,
                 DType dtype)
      : graph_(graph),
        shape_(shape),
        part_(part),
        dims_(shape, part, dtype),
        queries_{.heads = shape.heads, .len = part.queries, .whole_len = shape.query_len()},
        keys_{.heads = shape.kv_heads, .len = part.keys, .whole_len = shape.seq_len} {
    if (shape.documents == 0) return;
    const auto lengths = [&](AttentionTensor id) {
      return graph_.Vector(static_cast<int64_t>(id), shape.documents, CUDNN_DATA_INT32);
    };
    const auto offsets = [&](AttentionTensor id) {
      return graph_.Vector(static_cast<int64_t>(id), shape.documents + 1, CUDNN_DATA_INT64);
    };
    query_lengths_ = lengths(AttentionTensor::kQueryLengths);
    key_lengths_ = lengths(AttentionTensor::kKeyLengths);
    queries_.offsets = offsets(AttentionTensor::kQueryOffsets);
    keys_.offsets = offsets(AttentionTensor::kKeyOffsets);
    statistic_offsets_ = offsets(AttentionTensor::kStatisticOffsets);
  }

  void Forward() {
    const GraphTensor q = Rows(AttentionTensor::kQ, queries_);
    const GraphTensor k = Columns(AttentionTensor::kK, keys_);
    const GraphTensor v = Rows(AttentionTensor::kV, keys_);
    const GraphTensor o = Rows(AttentionTensor::kO, queries_);
    const GraphTensor lse = Statistics(AttentionTensor::kLse);
    const GraphTensor scores = Causal(WithinDocument(ScaledScores(q, k)));
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
    graph_.MatMul(p, v, o, {.rows = query_lengths_, .columns = {}, .products = key_lengths_});
  }

  void Backward() {
    const GraphTensor q = Rows(AttentionTensor::kQ, queries_);
    const GraphTensor k = Columns(AttentionTensor::kK, keys_);
    const GraphTensor v = Columns(AttentionTensor::kV, keys_);
    const GraphTensor o = Rows(AttentionTensor::kO, queries_);
    const GraphTensor lse = Statistics(AttentionTensor::kLse);
    const GraphTensor dout = Rows(AttentionTensor::kDout, queries_);
    const GraphTensor output_sums = OutputSums(o, dout);
    const GraphTensor p = Probabilities(q, k, lse);
    SumOverHeads(Transposed(p), dout, AttentionTensor::kDv, AttentionTensor::kDvOfHeads);
    const GraphTensor ds = ScoreGradients(p, QueriesByKeys(dout, v), output_sums);
    SumOverHeads(Transposed(ds), q, AttentionTensor::kDk, AttentionTensor::kDkOfHeads);
    QueryGradient(ds, k);
  }

 private:
  GraphTensor Rows(AttentionTensor id, const Side& side) {
    return graph_.Outer(static_cast<int64_t>(id), dims_.Rows(side),
                        dims_.RowStrides(side, RowStrideOf(id)), dims_.type, side.offsets);
  }
  GraphTensor Columns(AttentionTensor id, const Side& side) {
    return graph_.Outer(static_cast<int64_t>(id), dims_.Columns(side),
                        dims_.ColumnStrides(side, RowStrideOf(id)), dims_.type, side.offsets);
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
      default:  // o and its gradient, gradients of heads that share keys
        return shape_.heads * shape_.head_dim;
    }
  }
  GraphTensor Statistics(AttentionTensor id) {
    return graph_.Outer(static_cast<int64_t>(id), dims_.statistics, dims_.StatisticStrides(),
                        CUDNN_DATA_FLOAT, statistic_offsets_);
  }

  // One tensor for each value on the host, however often it is used.
  const GraphTensor& Host(AttentionTensor id, GraphTensor* made) {
    if (made->descriptor == nullptr) *made = graph_.HostFloat(static_cast<int64_t>(id));
    return *made;
  }
  const GraphTensor& Scale() { return Host(AttentionTensor::kScale, &scale_); }

  // A head's rows times columns.
  GraphTensor QueriesByKeys(const GraphTensor& rows, const GraphTensor& columns) {
    return graph_.MatMul(rows, columns, graph_.Inner(dims_.scores),
                         {.rows = query_lengths_, .columns = key_lengths_, .products = {}});
  }
  GraphTensor ScaledScores(const GraphTensor& q, const GraphTensor& k) {
    return graph_.Pointwise(CUDNN_POINTWISE_MUL, {QueriesByKeys(q, k), Scale(), {}});
  }

  GraphTensor Index(const GraphTensor& scores, int64_t axis, cudnnDataType_t math) {
    return graph_.Pointwise(CUDNN_POINTWISE_GEN_INDEX, {scores, {}, {}},
                            graph_.Inner(dims_.scores, CUDNN_DATA_INT32), math, axis);
  }
  GraphTensor Compare(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor& b) {
    return graph_.Pointwise(mode, {x, b, {}}, graph_.Inner(dims_.scores, CUDNN_DATA_BOOLEAN),
                            CUDNN_DATA_BOOLEAN);
  }
  // Minus infinity where it is not.
  GraphTensor Visible(const GraphTensor& scores, const GraphTensor& visible) {
    return graph_.Pointwise(
        CUDNN_POINTWISE_BINARY_SELECT,
        {scores, Host(AttentionTensor::kMinusInfinity, &minus_infinity_), visible});
  }

  // A query's place among the keys: the part's last one is the last key that it sees.
  GraphTensor QueryPosition(const GraphTensor& scores) {
    const GraphTensor row = Index(scores, 2, CUDNN_DATA_FLOAT);
    if (part_.queries == part_.keys) return row;
    const auto shift = [&](cudnnPointwiseMode_t mode, const GraphTensor& x, AttentionTensor by,
                           GraphTensor* made) {
      if (made->descriptor == nullptr) *made = graph_.HostInteger(static_cast<int64_t>(by));
      return graph_.Pointwise(mode, {x, *made, {}}, graph_.Inner(dims_.scores, CUDNN_DATA_INT32),
                              CUDNN_DATA_INT32);
    };
    const GraphTensor past =
        shift(CUDNN_POINTWISE_ADD, row, AttentionTensor::kKeyCount, &key_count_);
    return shift(CUDNN_POINTWISE_SUB, past, AttentionTensor::kQueryCount, &query_count_);
  }
  // No key after the query is.
  GraphTensor Causal(const GraphTensor& scores) {
    const GraphTensor row = QueryPosition(scores);
    const GraphTensor col = Index(scores, 3, CUDNN_DATA_FLOAT);
    return Visible(scores, Compare(CUDNN_POINTWISE_CMP_GE, row, col));
  }
  // No key behind the document's end is visible, and none to a query there.
  GraphTensor WithinDocument(const GraphTensor& scores) {
    if (shape_.documents == 0) return scores;
    const GraphTensor row = Index(scores, 2, CUDNN_DATA_INT32);
    const GraphTensor col = Index(scores, 3, CUDNN_DATA_INT32);
    const GraphTensor is_query = Compare(CUDNN_POINTWISE_CMP_LT, row, query_lengths_);
    const GraphTensor is_key = Compare(CUDNN_POINTWISE_CMP_LT, col, key_lengths_);
    return Visible(scores, Compare(CUDNN_POINTWISE_LOGICAL_AND, is_query, is_key));
  }

  // Sums dO * O over a head.
  GraphTensor OutputSums(const GraphTensor& o, const GraphTensor& dout) {
    const GraphTensor products = graph_.Pointwise(CUDNN_POINTWISE_MUL, {dout, o, {}});
    const GraphTensor sums =
        graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, graph_.Inner(dims_.statistics));
    const GraphTensor& one = Host(AttentionTensor::kOne, &one_);
    return graph_.Pointwise(CUDNN_POINTWISE_MUL, {sums, one, {}},
                            Statistics(AttentionTensor::kOutputSums));
  }

  GraphTensor Probabilities(const GraphTensor& q, const GraphTensor& k, const GraphTensor& lse) {
    const GraphTensor scores =
        graph_.Pointwise(CUDNN_POINTWISE_SUB, {WithinDocument(ScaledScores(q, k)), lse, {}});
    return graph_.Pointwise(CUDNN_POINTWISE_EXP, {Causal(scores), {}, {}});
  }

  // (dP - sums) * P * scale
  GraphTensor ScoreGradients(const GraphTensor& p, const GraphTensor& dp,
                             const GraphTensor& output_sums) {
    const GraphTensor centred = graph_.Pointwise(CUDNN_POINTWISE_SUB, {dp, output_sums, {}});
    const GraphTensor weighted = graph_.Pointwise(CUDNN_POINTWISE_MUL, {centred, p, {}});
    return graph_.Pointwise(CUDNN_POINTWISE_MUL, {weighted, Scale(), {}});
  }

  // [queries, keys] of each head the other way round, rounded to elements.
  GraphTensor Transposed(const GraphTensor& x) {
    GraphDims dims = dims_.scores;
    GraphDims strides = PackedStrides(dims);
    std::swap(dims[2], dims[3]);
    std::swap(strides[2], strides[3]);
    return graph_.Reshape(x, graph_.Inner(dims, strides, dims_.type));
  }

  // out = a b, added up over the query heads that share a key head. `of_heads`: before that, with
  // documents; where each starts follows from `out`'s offsets, by as much as there are more heads.
  void SumOverHeads(const GraphTensor& a, const GraphTensor& b, AttentionTensor id,
                    AttentionTensor of_heads) {
    Side keys = keys_;
    if (part_.adds) keys.whole_len = keys.len;  // in scratch
    const GraphTensor out = Rows(id, keys);
    const CudnnGraph::Extents extents = {
        .rows = key_lengths_, .columns = {}, .products = query_lengths_};
    if (shape_.kv_heads == shape_.heads) {
      graph_.MatMul(a, b, out, extents);
      return;
    }
    keys.heads = shape_.heads;
    const GraphTensor all = shape_.documents == 0
                                ? graph_.Inner(dims_.keys_by_query_head, dims_.type)
                                : Rows(of_heads, keys);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, graph_.MatMul(a, b, all, extents), out);
  }

  void QueryGradient(const GraphTensor& ds, const GraphTensor& k_columns) {
    const GraphTensor k = graph_.Reshape(
        k_columns, graph_.Inner(dims_.Rows(keys_), dims_.RowStrides(keys_, shape_.key_stride()),
                                dims_.type, keys_.offsets));
    const GraphTensor sums =
        graph_.Outer(static_cast<int64_t>(AttentionTensor::kDqSums), dims_.queries,
                     dims_.DqSumStrides(), CUDNN_DATA_FLOAT, queries_.offsets);
    graph_.MatMul(ds, k, sums, {.rows = query_lengths_, .columns = {}, .products = key_lengths_});
    graph_.Pointwise(CUDNN_POINTWISE_IDENTITY, {sums, {}, {}},
                     Rows(AttentionTensor::kDq, queries_));
  }

  CudnnGraph& graph_;
  const AttentionShape& shape_;
  const AttentionPart& part_;
  const AttentionDims dims_;
  Side queries_;
  Side keys_;
  GraphTensor query_lengths_, key_lengths_, statistic_offsets_;  // without documents: none
  GraphTensor scale_, minus_infinity_, one_, query_count_, key_count_;
};

}  // namespace

AttentionScratch::AttentionScratch(AttentionPass pass, const AttentionShape& shape,
                                   const AttentionPart& part) {
  const bool backward = pass == AttentionPass::kBackward;
  const int64_t documents = shape.documents;
  const int64_t offsets = documents == 0 ? 0 : Aligned((documents + 1) * 8);
  const int64_t rows = backward ? shape.batch * shape.heads * part.queries : 0;
  const bool has_heads = documents > 0 && shape.kv_heads < shape.heads;
  const int64_t of_heads = has_heads ? Aligned(rows * shape.head_dim * 2) : 0;
  query_offsets_at = Aligned(documents * 4);
  key_offsets_at = query_offsets_at + offsets;
  statistic_offsets_at = key_offsets_at + offsets;
  dq_sums_at = statistic_offsets_at + offsets;
  output_sums_at = dq_sums_at + Aligned(rows * shape.head_dim * 4);
  dk_of_heads_at = output_sums_at + Aligned(rows * 4);
  dv_of_heads_at = dk_of_heads_at + of_heads;
  const int64_t of_keys = backward && part.adds ? Aligned(2 * KeyElements(shape, part)) : 0;
  dk_to_add_at = dv_of_heads_at + of_heads;
  dv_to_add_at = dk_to_add_at + of_keys;
  workspace_at = dv_to_add_at + of_keys;
}

DocumentTable AttentionScratch::TableAt(char* start) const {
  const auto offsets = [&](int64_t at) { return reinterpret_cast<int64_t*>(start + at); };
  return {.lengths = reinterpret_cast<int32_t*>(start),
          .query_offsets = offsets(query_offsets_at),
          .key_offsets = offsets(key_offsets_at),
          .statistic_offsets = offsets(statistic_offsets_at)};
}

char* AttentionScratch::Start(View scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch.data);
  constexpr uintptr_t kStep = kScratchAlignment;
  return static_cast<char*>(scratch.data) + (kStep - address % kStep) % kStep;
}

int64_t CudnnScratchBytes(AttentionPass pass, const AttentionShape& shape,
                          const AttentionPart& part, int64_t workspace_bytes) {
  return kScratchAlignment - kArenaAlignment + AttentionScratch(pass, shape, part).workspace_at +
         workspace_bytes;
}

BackendStatus PlanAttention(const CudnnLibrary& library, const CudnnTarget& target,
                            AttentionPass pass, const AttentionShape& shape,
                            const AttentionPart& part, DType dtype, int64_t scratch_bytes,
                            std::unique_ptr<CudnnGraph>* plan) {
  auto graph = std::make_unique<CudnnGraph>(library);
  AttentionGraph attention(*graph, shape, part, dtype);
  if (pass == AttentionPass::kForward) {
    attention.Forward();
  } else {
    attention.Backward();
  }
  const BackendStatus status =
      graph->Build(target, scratch_bytes - CudnnScratchBytes(pass, shape, part, 0));
  if (status.ok()) *plan = std::move(graph);
  return status;
}

}  // namespace weft
