#include "worker/backend/cpu/narrow_matmul.h"

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

// Blocks of c, and how much of k is widened at a time: 5 MiB in all, whatever the operands.
constexpr int64_t kBlockRows = 512;
constexpr int64_t kBlockCols = 512;
constexpr int64_t kBlockDepth = 1024;

// Rows [first_row, first_row + rows), columns likewise, of a matrix with `stride` columns.
struct Block {
  int64_t first_row = 0, rows = 0;
  int64_t first_col = 0, cols = 0;
};

Block BlockOf(Transpose transpose, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return transpose == Transpose::kNo ? Block{row, rows, col, cols} : Block{col, cols, row, rows};
}

// Copies the block to `to`, rows next to each other.
void WidenBlock(View from, const Block& block, float* to) {
  WithElement(from.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, float>) {
      const T* const first = static_cast<const T*>(from.data) + block.first_col;
      for (int64_t row = 0; row < block.rows; ++row) {
        ConvertInto(first + (block.first_row + row) * from.cols, to + row * block.cols, block.cols);
      }
    }
  });
}

void NarrowBlock(const float* from, const Block& block, View to) {
  WithElement(to.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, float>) {
      T* const first = static_cast<T*>(to.data) + block.first_col;
      for (int64_t row = 0; row < block.rows; ++row) {
        ConvertInto(from + row * block.cols, first + (block.first_row + row) * to.cols, block.cols);
      }
    }
  });
}

dnnl::memory::data_type DnnlType(DType dtype) {
  return dtype == DType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// As a matrix after its transpose, of which only `rows` rows are taken.
dnnl::memory::desc Describe(View x, Transpose transpose, int64_t rows) {
  const dnnl::memory::dims stored = {rows, x.cols};
  const dnnl::memory::dims flipped = {rows, x.rows};
  const dnnl::memory::dims strides = {x.cols, 1};
  const dnnl::memory::dims flipped_strides = {1, x.cols};
  return transpose == Transpose::kNo
             ? dnnl::memory::desc(stored, DnnlType(x.dtype), strides)
             : dnnl::memory::desc(flipped, DnnlType(x.dtype), flipped_strides);
}

// Rows of c that are made at once: all but for gradients of weights, a^T b into float, on AVX-512
// without AMX. There oneDNN 2.6 first copies all of a; of a part of a's columns it packs one block
// after the other, into a few MiB of its own for the time of the call, which is 8 to 10 % faster on
// an MLP's weights, 2 % on attention's and a third on those of a head of 50,257 rows (Zen 4).
int64_t RowsAtOnce(const NarrowProduct& product) {
  constexpr int64_t kMostRows = 4096;
  constexpr int64_t kUnit = 64;
  const bool in_parts = product.transpose_a == Transpose::kYes && product.c.dtype == DType::kF32 &&
                        dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_bf16;
  const int64_t parts = std::max<int64_t>(2, (product.m + kMostRows - 1) / kMostRows);
  const int64_t rows = ((product.m + parts - 1) / parts + kUnit - 1) / kUnit * kUnit;
  return in_parts ? std::min(product.m, rows) : product.m;
}

}  // namespace

// Primitives take long to make, so each shape's is kept.
class DnnlMatMul {
 public:
  // False, before anything is written, if oneDNN has no implementation here.
  bool Multiply(const NarrowProduct& product) {
    const int64_t rows = RowsAtOnce(product);
    const int64_t last_rows = product.m - (product.m - 1) / rows * rows;
    if (!Find(product, rows).exists || !Find(product, last_rows).exists) return false;
    for (int64_t row = 0; row < product.m; row += rows) {
      MultiplyRows(Find(product, std::min(rows, product.m - row)), product, row);
    }
    return true;
  }

 private:
  struct Made {
    bool exists = false;
    dnnl::memory::desc a, b, c, scratch;
    dnnl::matmul primitive;
  };
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, Transpose, Transpose, DType, bool>;

  void MultiplyRows(const Made& made, const NarrowProduct& product, int64_t first_row) {
    if (scratch_.size() < made.scratch.get_size()) scratch_.resize(made.scratch.get_size());
    View a = product.a;
    const int64_t a_at = product.transpose_a == Transpose::kYes ? first_row : first_row * a.cols;
    a.data = static_cast<char*>(a.data) + a_at * ElementBytes(a.dtype);
    const View c = product.c.RowRange(first_row, 0);
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, dnnl::memory(made.a, engine_, a.data)},
        {DNNL_ARG_WEIGHTS, dnnl::memory(made.b, engine_, product.b.data)},
        {DNNL_ARG_DST, dnnl::memory(made.c, engine_, c.data)},
        {DNNL_ARG_SCRATCHPAD, dnnl::memory(made.scratch, engine_, scratch_.data())}};
    made.primitive.execute(stream_, arguments);
    stream_.wait();
  }

  // For `rows` rows of c.
  const Made& Find(const NarrowProduct& product, int64_t rows) {
    const Key key = {rows,
                     product.m,
                     product.n,
                     product.k,
                     product.transpose_a,
                     product.transpose_b,
                     product.c.dtype,
                     product.beta != 0};
    const auto found = made_.find(key);
    return found != made_.end() ? found->second
                                : made_.emplace(key, Make(product, rows)).first->second;
  }

  Made Make(const NarrowProduct& product, int64_t rows) {
    Made made;
    made.a = Describe(product.a, product.transpose_a, rows);
    made.b = Describe(product.b, product.transpose_b, product.k);
    made.c = Describe(product.c, Transpose::kNo, rows);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (product.beta != 0) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    try {
      const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(made.a, made.b, made.c),
                                                attributes, engine_);
      made.scratch = chosen.scratchpad_desc();
      made.primitive = dnnl::matmul(chosen);
      made.exists = true;
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
    return made;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Made> made_;
  std::vector<char> scratch_;
};

NarrowMatMul::NarrowMatMul(By by) {
  if (by == By::kBest) dnnl_ = std::make_unique<DnnlMatMul>();
}

NarrowMatMul::~NarrowMatMul() = default;

BackendStatus NarrowMatMul::Multiply(const NarrowProduct& product) try {
  const bool asks_dnnl = dnnl_ != nullptr && product.a.dtype == DType::kBf16;
  if (!asks_dnnl || !dnnl_->Multiply(product)) MultiplyInBlocks(product);
  return {};
} catch (const dnnl::error& error) {
  return Failure(kInternal, "oneDNN, product of [%lld, %lld] and [%lld, %lld]: %.120s",
                 static_cast<long long>(product.m), static_cast<long long>(product.k),
                 static_cast<long long>(product.k), static_cast<long long>(product.n),
                 error.what());
}

void NarrowMatMul::MultiplyInBlocks(const NarrowProduct& p) {
  a_.resize(static_cast<size_t>(kBlockRows * kBlockDepth));
  b_.resize(static_cast<size_t>(kBlockDepth * kBlockCols));
  c_.resize(static_cast<size_t>(kBlockRows * kBlockCols));
  const bool is_float = p.c.dtype == DType::kF32;
  for (int64_t row = 0; row < p.m; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, p.m - row);
    for (int64_t col = 0; col < p.n; col += kBlockCols) {
      const int64_t cols = std::min(kBlockCols, p.n - col);
      const Block block = {row, rows, col, cols};
      float* const c = is_float ? static_cast<float*>(p.c.data) + row * p.c.cols + col : c_.data();
      const int64_t c_stride = is_float ? p.c.cols : cols;
      if (!is_float && p.beta != 0) WidenBlock(p.c, block, c);
      for (int64_t at = 0; at < p.k; at += kBlockDepth) {
        const int64_t depth = std::min(kBlockDepth, p.k - at);
        const Block a = BlockOf(p.transpose_a, row, rows, at, depth);
        const Block b = BlockOf(p.transpose_b, at, depth, col, cols);
        WidenBlock(p.a, a, a_.data());
        WidenBlock(p.b, b, b_.data());
        MatMulStrided({rows, cols, depth, a.cols, b.cols, c_stride}, 1, a_.data(), p.transpose_a,
                      b_.data(), p.transpose_b, at == 0 ? p.beta : 1.0F, c);
      }
      if (!is_float) NarrowBlock(c, block, p.c);
    }
  }
}

const char* NarrowMatMulVersion() {
  static const std::string text = [] {
    const dnnl_version_t* const version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch);
  }();
  return text.c_str();
}

}  // namespace weft
