// A row belongs to a team of threads, a warp to a block, by its length. Each thread copies its
// packs of a row to shared memory and reads no others, so that copies need no barrier.
//
// Sums are of floats within a pack, and in double beyond. Those over rows (gradients of weights)
// are of floats over the rows of a team, at most kMostRows (more where scratch has no room for as
// many sums), and in double beyond; which rows a team has depends on the shape alone.
#include <algorithm>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/copy_async.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/norm_stream.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMostPacks = 4;  // of a row, that are a thread's
constexpr int64_t kPackBytes = 16;

// Blocks that a multiprocessor holds, so that some 40 to 100 KB are on their way to each: at the
// 4.8 TB/s of an H200's data sheet, and if memory takes 0.8 us, 132 of them need 29 KB each.
constexpr int kNormBlocks = 4;
constexpr int kGradientBlocks = 2;
constexpr int64_t kMultiprocessors = 132;
constexpr int64_t kMostRows = 128;  // whose gradients of weights a block's teams add up in float

struct RowsShape {
  int64_t rows;
  int64_t cols;
  int packs;  // of a row
  double eps;
  float offset;  // of weights
};

// The threads of a row, of the `kTeams` that a block has in hand.
template <int kTeam>
struct Place {
  static constexpr int kTeams = kThreads / kTeam;
  int team;
  int member;

  __device__ Place()
      : team(static_cast<int>(threadIdx.x) / kTeam),
        member(static_cast<int>(threadIdx.x) % kTeam) {}

  __device__ int64_t FirstRow() const { return static_cast<int64_t>(blockIdx.x) * kTeams + team; }
  __device__ static int64_t Stride() { return static_cast<int64_t>(gridDim.x) * kTeams; }

  // f(i, kept): pack i of the row, which is this thread's kept-th.
  template <typename F>
  __device__ __forceinline__ void ForEachPack(int packs, const F& f) const {
#pragma unroll
    for (int kept = 0; kept < kMostPacks; ++kept) {
      const int i = member + kept * kTeam;
      if (i < packs) f(i, kept);
    }
  }
};

template <typename T, int kArrays>
struct RowArrays {
  const T* at[kArrays];
};

// A team's rows of several arrays: one in hand, the next one on its way.
template <typename T, int kTeam, int kArrays>
class RowStream {
 public:
  using Wide = Pack<T, kWidest<T>>;

  __device__ RowStream(const RowsShape& shape, const RowArrays<T, kArrays>& arrays)
      : shape_(shape), arrays_(arrays), slots_(DynamicShared<Wide>() + threadIdx.x) {}

  // Asks for a row, if there is one.
  __device__ void Fetch(int64_t row) {
    if (row >= shape_.rows) return;
    for (int array = 0; array < kArrays; ++array) {
      const Wide* const from =
          reinterpret_cast<const Wide*>(arrays_.at[array]) + row * shape_.packs;
      place_.ForEachPack(shape_.packs, [&](int i, int kept) {
        CopyAsync16(Slot(1 - in_hand_, array, kept), from + i, true);
      });
    }
  }
  // Takes the row that was asked for.
  __device__ void Take() {
    WaitForCopies();
    in_hand_ = 1 - in_hand_;
  }
  __device__ Wide At(int array, int kept) const { return *Slot(in_hand_, array, kept); }

 private:
  __device__ Wide* Slot(int which, int array, int kept) const {
    return slots_ + ((which * kArrays + array) * kMostPacks + kept) * kThreads;
  }

  const RowsShape& shape_;
  const RowArrays<T, kArrays>& arrays_;
  const Place<kTeam> place_;
  Wide* const slots_;
  int in_hand_ = 1;
};

template <int kArrays>
constexpr int64_t StreamBytes() {
  return 2 * kArrays * kMostPacks * kThreads * kPackBytes;
}

// Replaces a thread's values by their sums over its team. All threads of the block call.
template <int kTeam>
class TeamSum {
 public:
  template <int kValues>
  __device__ void operator()(double (&values)[kValues]) {
    for (double& value : values) value = ReduceWarp(SumOf{}, value);
    if constexpr (kTeam > 32) {
      // Two by turns: what the call before has left may still be read.
      __shared__ double of_warp[2][kValues][kWarps];
      constexpr int kTeamWarps = kTeam / 32;
      const int warp = static_cast<int>(threadIdx.x) / 32;
      const int first = warp / kTeamWarps * kTeamWarps;
      for (int v = 0; v < kValues; ++v) {
        if (threadIdx.x % 32 == 0) of_warp[turn_][v][warp] = values[v];
      }
      __syncthreads();
      for (int v = 0; v < kValues; ++v) {
        values[v] = of_warp[turn_][v][first];
        for (int w = 1; w < kTeamWarps; ++w) values[v] += of_warp[turn_][v][first + w];
      }
      turn_ = 1 - turn_;
    }
  }

 private:
  int turn_ = 0;
};

template <typename T>
__device__ Pack<T, kWidest<T>> PackAt(const T* data, int64_t i) {
  return reinterpret_cast<const Pack<T, kWidest<T>>*>(data)[i];
}

// kHasMean: LayerNorm, whose bias may be null; else bias and mean are.
template <typename T, int kTeam, bool kHasMean>
__global__ void __launch_bounds__(kThreads, kNormBlocks)
    StreamedNormKernel(RowsShape shape, RowArrays<T, 1> x, const T* weight, const T* bias, T* y,
                       float* mean, float* rstd) {
  constexpr int kWidth = kWidest<T>;
  const Place<kTeam> place;
  RowStream<T, kTeam, 1> rows(shape, x);
  TeamSum<kTeam> sum;
  const auto cols = static_cast<double>(shape.cols);
  rows.Fetch(place.FirstRow());
  // All teams of a block go round as often: they meet in the sums.
  for (int64_t row = place.FirstRow(); row - place.team < shape.rows; row += place.Stride()) {
    rows.Take();
    rows.Fetch(row + place.Stride());
    const int packs = row < shape.rows ? shape.packs : 0;
    float row_mean = 0;
    if constexpr (kHasMean) {
      double total[1] = {};
      place.ForEachPack(packs, [&](int /*i*/, int kept) {
        const auto values = rows.At(0, kept);
        float part = 0;
        for (const T value : values.at) part += ToFloat(value);
        total[0] += static_cast<double>(part);
      });
      sum(total);
      row_mean = static_cast<float>(total[0] / cols);
    }
    double squares[1] = {};
    place.ForEachPack(packs, [&](int /*i*/, int kept) {
      const auto values = rows.At(0, kept);
      float part = 0;
      for (const T value : values.at) {
        const float centered = ToFloat(value) - row_mean;
        part += centered * centered;
      }
      squares[0] += static_cast<double>(part);
    });
    sum(squares);
    const auto row_rstd = static_cast<float>(1.0 / sqrt(squares[0] / cols + shape.eps));
    auto* const to = reinterpret_cast<Pack<T, kWidth>*>(y) + row * shape.packs;
    place.ForEachPack(packs, [&](int i, int kept) {
      const auto values = rows.At(0, kept);
      const auto weights = PackAt(weight, i);
      Pack<T, kWidth> biases = {};
      if (kHasMean && bias != nullptr) biases = PackAt(bias, i);
      Pack<T, kWidth> normal;
      for (int e = 0; e < kWidth; ++e) {
        float value =
            (ToFloat(values.at[e]) - row_mean) * row_rstd * (shape.offset + ToFloat(weights.at[e]));
        if constexpr (kHasMean) value += ToFloat(biases.at[e]);
        normal.at[e] = FromFloat<T>(value);
      }
      to[i] = normal;
    });
    if (packs > 0 && place.member == 0) {
      if constexpr (kHasMean) mean[row] = row_mean;
      rstd[row] = row_rstd;
    }
  }
}

// Holds a row's statistics, which are asked for a row ahead, as the row itself is.
struct Statistics {
  float mean = 0;
  float rstd = 0;
};

__device__ Statistics StatisticsOf(int64_t row, int64_t rows, const float* mean,
                                   const float* rstd) {
  if (row >= rows) return {};
  return {mean == nullptr ? 0.0F : mean[row], rstd[row]};
}

// Holds what a thread's columns have in a team's rows: kSums sums of each.
template <int kSums, int kWidth>
struct ColumnSums {
  float at[kSums][kMostPacks][kWidth] = {};
};

// partials [blocks, kSums, cols]: those of a block's teams, in their order, by way of the shared
// memory that held rows.
template <int kTeam, int kSums, int kWidth>
__device__ void StoreBlockSums(const RowsShape& shape, const ColumnSums<kSums, kWidth>& own,
                               float* partials) {
  const Place<kTeam> place;
  float* const shared = DynamicShared<float>();  // [teams, kSums, cols]
  const int cols = shape.packs * kWidth;
  __syncthreads();  // others may still read their rows
  for (int s = 0; s < kSums; ++s) {
    float* const to = shared + (place.team * kSums + s) * cols;
    place.ForEachPack(shape.packs, [&](int i, int kept) {
      for (int e = 0; e < kWidth; ++e) to[i * kWidth + e] = own.at[s][kept][e];
    });
  }
  __syncthreads();
  float* const to = partials + static_cast<int64_t>(blockIdx.x) * kSums * cols;
  for (int i = static_cast<int>(threadIdx.x); i < kSums * cols; i += kThreads) {
    double total = 0;
    for (int team = 0; team < place.kTeams; ++team) {
      total += static_cast<double>(shared[team * kSums * cols + i]);
    }
    to[i] = static_cast<float>(total);
  }
}

// With g = dy * (offset + weight) and n the normalised row: dx += rstd * (g - mean(g) - n * mean(g
// * n)), without mean(g) for the root-mean-square norm. Sums: dy * n and, with a mean, dy.
template <typename T, int kTeam, bool kHasMean>
__global__ void __launch_bounds__(kThreads, kGradientBlocks)
    StreamedNormGradientKernel(RowsShape shape, RowArrays<T, 3> dy_x_dx, const T* weight,
                               const float* mean, const float* rstd, T* dx, float* partials) {
  constexpr int kWidth = kWidest<T>;
  constexpr int kSums = kHasMean ? 2 : 1;
  const Place<kTeam> place;
  RowStream<T, kTeam, 3> rows(shape, dy_x_dx);
  TeamSum<kTeam> sum;
  ColumnSums<kSums, kWidth> column_sums;
  const double inverse_cols = 1.0 / static_cast<double>(shape.cols);
  rows.Fetch(place.FirstRow());
  Statistics next = StatisticsOf(place.FirstRow(), shape.rows, mean, rstd);
  for (int64_t row = place.FirstRow(); row - place.team < shape.rows; row += place.Stride()) {
    rows.Take();
    const Statistics saved = next;
    rows.Fetch(row + place.Stride());
    next = StatisticsOf(row + place.Stride(), shape.rows, mean, rstd);
    const int packs = row < shape.rows ? shape.packs : 0;
    double sums[kSums] = {};  // g * n, g
    place.ForEachPack(packs, [&](int i, int kept) {
      const auto dys = rows.At(0, kept);
      const auto xs = rows.At(1, kept);
      const auto weights = PackAt(weight, i);
      float parts[2] = {};
      for (int e = 0; e < kWidth; ++e) {
        const float g = ToFloat(dys.at[e]) * (shape.offset + ToFloat(weights.at[e]));
        parts[0] += g * ((ToFloat(xs.at[e]) - saved.mean) * saved.rstd);
        parts[1] += g;
      }
      for (int s = 0; s < kSums; ++s) sums[s] += static_cast<double>(parts[s]);
    });
    sum(sums);
    const auto mean_gn = static_cast<float>(sums[0] * inverse_cols);
    const auto mean_g = kHasMean ? static_cast<float>(sums[kSums - 1] * inverse_cols) : 0.0F;
    auto* const to = reinterpret_cast<Pack<T, kWidth>*>(dx) + row * shape.packs;
    place.ForEachPack(packs, [&](int i, int kept) {
      const auto dys = rows.At(0, kept);
      const auto xs = rows.At(1, kept);
      Pack<T, kWidth> dxs = rows.At(2, kept);
      const auto weights = PackAt(weight, i);
      for (int e = 0; e < kWidth; ++e) {
        const float dy = ToFloat(dys.at[e]);
        const float g = dy * (shape.offset + ToFloat(weights.at[e]));
        const float normal = (ToFloat(xs.at[e]) - saved.mean) * saved.rstd;
        const float term = saved.rstd * (g - mean_g - normal * mean_gn);
        dxs.at[e] = FromFloat<T>(ToFloat(dxs.at[e]) + term);
        column_sums.at[0][kept][e] += dy * normal;
        if constexpr (kHasMean) column_sums.at[1][kept][e] += dy;
      }
      to[i] = dxs;
    });
  }
  StoreBlockSums<kTeam>(shape, column_sums, partials);
}

int64_t PacksOf(View x) {
  return x.cols * ElementBytes(x.dtype) / kPackBytes;
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}
template <typename T>
T* Elements(View x) {
  return static_cast<T*>(x.data);
}

template <int kThreadsOfARow>
struct TeamOf {
  static constexpr int kTeam = kThreadsOfARow;
};

// Calls launch(element, team, has_mean, shape) with values of the types that serve x.
template <typename F>
cudaError_t WithTeam(View x, const NormConstants& constants, const F& launch) {
  const auto packs = static_cast<int>(PacksOf(x));
  return WithType(x.dtype, [&](auto zero) {
    const RowsShape shape = {x.rows, x.cols, packs, constants.eps,
                             static_cast<float>(constants.offset)};
    if (packs <= 32 * kMostPacks) return launch(zero, TeamOf<32>{}, shape);
    if (packs <= 64 * kMostPacks) return launch(zero, TeamOf<64>{}, shape);
    if (packs <= 128 * kMostPacks) return launch(zero, TeamOf<128>{}, shape);
    return launch(zero, TeamOf<256>{}, shape);
  });
}

// Counts the blocks of the gradient's grid, each of which leaves sums of `sums_bytes`.
int64_t GradientBlocks(int64_t rows, int64_t teams, int64_t sums_bytes, int64_t scratch_bytes) {
  constexpr int64_t kAtOnce = kMultiprocessors * kGradientBlocks;
  const int64_t times = (rows + kAtOnce * kMostRows - 1) / (kAtOnce * kMostRows);
  return std::min({(rows + teams - 1) / teams, kAtOnce * times, scratch_bytes / sums_bytes});
}

}  // namespace

bool StreamsRows(View x, std::initializer_list<View> others) {
  return x.cols * ElementBytes(x.dtype) % kPackBytes == 0 && PacksOf(x) <= kThreads * kMostPacks &&
         IsWide(x.data) && std::all_of(others.begin(), others.end(), [](const View& other) {
           return IsWide(other.data);
         });
}

cudaError_t QueueStreamedNorm(const Queue& queue, View x, View weight, View bias,
                              const NormConstants& constants, View y, View mean, View rstd) {
  return WithTeam(x, constants, [&](auto zero, auto team, const RowsShape& shape) {
    using T = decltype(zero);
    constexpr int kTeam = decltype(team)::kTeam;
    constexpr int64_t kTeams = Place<kTeam>::kTeams;
    const int64_t blocks = std::min((x.rows + kTeams - 1) / kTeams, kMultiprocessors * kNormBlocks);
    const Grid grid = {.blocks = blocks, .threads = kThreads, .shared_bytes = StreamBytes<1>()};
    const auto launch = [&](auto kernel) {
      return Launch(kernel, grid, queue.stream, shape, RowArrays<T, 1>{{Elements<T>(x)}},
                    Elements<const T>(weight), Elements<const T>(bias), Elements<T>(y),
                    Floats(mean), Floats(rstd));
    };
    if (mean.data != nullptr) return launch(StreamedNormKernel<T, kTeam, true>);
    return launch(StreamedNormKernel<T, kTeam, false>);
  });
}

cudaError_t QueueStreamedNormGradient(const Queue& queue, View dy, View x, View weight,
                                      double offset, View mean, View rstd, View dx, View dweight,
                                      View dbias) {
  if (x.elements() == 0) return cudaSuccess;
  const bool has_mean = mean.data != nullptr;
  const int64_t sums_bytes = x.cols * (has_mean ? 2 : 1) * static_cast<int64_t>(sizeof(float));
  auto* const partials = static_cast<float*>(queue.scratch);
  int64_t blocks = 0;
  const cudaError_t code =
      WithTeam(x, {.offset = offset}, [&](auto zero, auto team, const RowsShape& shape) {
        using T = decltype(zero);
        constexpr int kTeam = decltype(team)::kTeam;
        blocks = GradientBlocks(x.rows, Place<kTeam>::kTeams, sums_bytes, queue.scratch_bytes);
        if (blocks < 1) return cudaErrorInvalidValue;
        const Grid grid = {.blocks = blocks, .threads = kThreads, .shared_bytes = StreamBytes<3>()};
        const auto launch = [&](auto kernel) {
          return Launch(kernel, grid, queue.stream, shape,
                        RowArrays<T, 3>{{Elements<T>(dy), Elements<T>(x), Elements<T>(dx)}},
                        Elements<const T>(weight), Floats(mean), Floats(rstd), Elements<T>(dx),
                        partials);
        };
        if (has_mean) return launch(StreamedNormGradientKernel<T, kTeam, true>);
        return launch(StreamedNormGradientKernel<T, kTeam, false>);
      });
  if (code != cudaSuccess) return code;
  return QueueAddPartialSums(queue, partials, blocks, has_mean ? 2 : 1, dweight, dbias);
}

}  // namespace weft
