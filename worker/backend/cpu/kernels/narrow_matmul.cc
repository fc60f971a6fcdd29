#include "worker/backend/cpu/kernels/narrow_matmul.h"

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "worker/backend/cpu/host/memory.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

// A model of Intel's family 6 whose units do twice as many products of bf16 as of fp32 without AMX.
constexpr int kCooperLake = 0x55;

// Rows [first_row, first_row + rows), columns likewise, of a matrix.
struct Block {
  int64_t first_row = 0, rows = 0;
  int64_t first_col = 0, cols = 0;
  friend bool operator==(const Block&, const Block&) = default;
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
        ConvertInto(first + (block.first_row + row) * from.stride(), to + row * block.cols,
                    block.cols);
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
        ConvertInto(from + row * block.cols, first + (block.first_row + row) * to.stride(),
                    block.cols);
      }
    }
  });
}

// The block of an operand that is there in single precision.
class Widened {
 public:
  Widened(View operand, float* room) : operand_(operand), room_(room) {}

  const float* Take(const Block& block) {
    if (block != held_) WidenBlock(operand_, block, room_);
    held_ = block;
    return room_;
  }

 private:
  const View operand_;
  float* const room_;
  Block held_;
};

// [0, total) in as few parts of the same size as there can be of at most `most`.
struct Parts {
  Parts(int64_t length, int64_t most)
      : total(length), count((total + most - 1) / most), size((total + count - 1) / count) {}
  int64_t First(int64_t part) const { return part * size; }
  int64_t Size(int64_t part) const { return std::min(size, total - part * size); }
  const int64_t total, count, size;
};

// Multiplies a part of c, block after block of `edge` rows, columns and products
// at most. Of a and b the operand of the longer side changes from one block to the next, the other
// one is kept where all of k is widened at once. room: 3 edge^2 floats.
void MultiplyPart(const NarrowProduct& p, const MatMulPart& whole, int64_t edge, float* room) {
  Widened a(p.a, room);
  Widened b(p.b, room + edge * edge);
  float* const sums = room + 2 * edge * edge;
  const Parts down(whole.rows, edge);
  const Parts across(whole.cols, edge);
  const Parts along(p.k, edge);
  const bool is_tall = whole.rows > whole.cols;
  for (int64_t i = 0; i < down.count * across.count; ++i) {
    const int64_t row_part = is_tall ? i % down.count : i / across.count;
    const int64_t col_part = is_tall ? i / down.count : i % across.count;
    const Block block = {whole.row + down.First(row_part), down.Size(row_part),
                         whole.col + across.First(col_part), across.Size(col_part)};
    const bool is_float = p.c.dtype == DType::kF32;
    float* const c =
        is_float ? static_cast<float*>(p.c.data) + block.first_row * p.c.stride() + block.first_col
                 : sums;
    if (!is_float && p.beta != 0) WidenBlock(p.c, block, c);
    for (int64_t part = 0; part < along.count; ++part) {
      const int64_t at = along.First(part), depth = along.Size(part);
      const Block of_a = BlockOf(p.transpose_a, block.first_row, block.rows, at, depth);
      const Block of_b = BlockOf(p.transpose_b, at, depth, block.first_col, block.cols);
      MatMulStrided({block.rows, block.cols, depth, of_a.cols, of_b.cols,
                     is_float ? p.c.stride() : block.cols},
                    1, a.Take(of_a), p.transpose_a, b.Take(of_b), p.transpose_b,
                    part == 0 ? p.beta : 1.0F, c);
    }
    if (!is_float) NarrowBlock(c, block, p.c);
  }
}

dnnl::memory::data_type DnnlType(DType dtype) {
  return dtype == DType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Describes x as a matrix after its transpose, of which only `rows` rows are taken.
dnnl::memory::desc Describe(View x, Transpose transpose, int64_t rows) {
  const dnnl::memory::dims stored = {rows, x.cols};
  const dnnl::memory::dims flipped = {rows, x.rows};
  const dnnl::memory::dims strides = {x.stride(), 1};
  const dnnl::memory::dims flipped_strides = {1, x.stride()};
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
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Transpose, Transpose,
                         DType, bool>;

  void MultiplyRows(const Made& made, const NarrowProduct& product, int64_t first_row) {
    if (scratch_.size() < made.scratch.get_size()) scratch_.resize(made.scratch.get_size());
    View a = product.a;
    const int64_t a_at =
        product.transpose_a == Transpose::kYes ? first_row : first_row * a.stride();
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
                     product.a.stride(),
                     product.c.stride(),
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

// Three squares of floats per thread: 12 MiB for each of up to 8, 96 MiB for all of up to 512.
WideningMatMul::WideningMatMul(const Threads& threads) : threads_(threads) {
  while (edge_ > 128 && threads.count() * edge_ > 8 * 1024 * 1024 / edge_) edge_ /= 2;
}

WideningMatMul::~WideningMatMul() {
  UnmapMemory(room_, RoomBytes());
}

int64_t WideningMatMul::RoomBytes() const {
  return threads_.count() * 3 * edge_ * edge_ * int64_t{sizeof(float)};
}

BackendStatus WideningMatMul::Multiply(const NarrowProduct& p) {
  if (room_ == nullptr) room_ = static_cast<float*>(MapMemory(RoomBytes()));
  if (room_ == nullptr) {
    return Failure(kFailedPrecondition,
                   "no memory for %lld bytes of blocks of matrix products; free some, or use fewer "
                   "than %d threads",
                   static_cast<long long>(RoomBytes()), threads_.count());
  }
  ForEachPart(threads_, p.m, p.n, p.k, [&](const MatMulPart& part, int index) {
    MultiplyPart(p, part, edge_, room_ + index * 3 * edge_ * edge_);
  });
  return {};
}

Bf16Products Bf16ProductsOf(const ProcessorFeatures& features) {
  if (features.amx_bf16) return Bf16Products::kOneDnn;
  const bool has_slow_units = features.intel && features.model != kCooperLake;
  return features.avx512_bf16 && !has_slow_units ? Bf16Products::kOneDnn : Bf16Products::kWidened;
}

NarrowMatMul::NarrowMatMul(const Threads& threads, Bf16Products bf16) : widening_(threads) {
  if (bf16 == Bf16Products::kOneDnn) dnnl_ = std::make_unique<DnnlMatMul>();
}

NarrowMatMul::~NarrowMatMul() = default;

BackendStatus NarrowMatMul::Multiply(const NarrowProduct& product) try {
  const bool asks_dnnl = dnnl_ != nullptr && product.a.dtype == DType::kBf16;
  if (asks_dnnl && dnnl_->Multiply(product)) return {};
  return widening_.Multiply(product);
} catch (const dnnl::error& error) {
  return Failure(kInternal, "oneDNN, product of [%lld, %lld] and [%lld, %lld]: %.120s",
                 static_cast<long long>(product.m), static_cast<long long>(product.k),
                 static_cast<long long>(product.k), static_cast<long long>(product.n),
                 error.what());
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
