// Curve: what a training run shows to the outside, and the one comparison by which the parity tests
// judge it, whoever produced it: a layout (training.h) or the NumPy model.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/parity/memory_trace.h"
#include "tests/parity/parity_job.h"

namespace weft {

struct Curve {
  std::vector<double> losses;                            // by step
  std::vector<double> grad_norms;                        // by step
  std::map<std::string, std::vector<double>> gradients;  // of step 1, whole tensors
  std::vector<std::string> loss_hex;                     // as metrics.jsonl has them
  std::vector<std::string> shard_hashes;  // of the last checkpoint, by rank; empty for NumPy
  std::vector<MemoryTrace> memory;        // by rank, where the job counts allocations
};

// Two curves of one job may differ by so much, relative; by default in fp32.
struct Bounds {
  double loss = 1e-6;
  double norm = 1e-5;
  double gradient = 2e-6;  // of step 1, each tensor norm-wise
};

// Bounds of a layout against a single rank that multiplies as many rows at once (OneRankLike). In
// 16 bits (u, a rounding's share: 2^-8 in bf16, 2^-11 in fp16) step 1 has the same bits wherever
// each rounded number is a sum of the same terms; later steps go apart as weights of almost the
// same value are rounded to different neighbours. Over tp and cp sums are rounded in parts: a
// gradient passes some 5 of them. Measured over tp and cp: losses 0.1 u, gradients 1.7 u, norms 0.7
// u. But llama's step 17 is ill-conditioned under AdamW (EnglishLlamaJob): 4.5 u there in bf16
// and 10.7 in fp16, with any layout that rounds otherwise, when all other steps agree. So in 16
// bits llama trains on another order of the data, or with SGD. In fp8, whose results are bf16,
// losses go apart as in bf16 (measured over tp: 7e-5, the bound is 1e-3); a gradient over tp as
// tests/worker/state/fp8_test.cc says. With moments of 8 bits (fp32, no tp), quotients between two
// of the 256 numbers go to either.
Bounds BoundsOf(const JobSpec& job, const Layout& layout);

// The layout of a single rank that `layout` is compared with. Some kernels sum a row of a product
// in another order when more rows are multiplied (docs/reproducibility.md), and in 16 bits such a
// sum may be rounded to the other neighbour: there one rank takes the same rows at once. In fp32 it
// takes the whole batch. `layout` is Fitted to the job.
Layout OneRankLike(const JobSpec& job, const Layout& layout);

// Bounds of one rank's curve against that of the whole batch at once, where OneRankLike is another:
// sums are rounded to either neighbour in some 5 places, as over tp (measured with kernels for
// AVX2: gradients 0.8 u).
Bounds BoundsOfOtherRows(const JobSpec& job);

// Everything in `got` that is not as in `expected`, in words; empty: they agree. Losses and norms
// within their bounds; each gradient tensor within
// ||g - e|| <= gradient max(||e||, 1e-3 ||E||), E all gradients: the key bias is zero in truth.
std::vector<std::string> Differences(const Curve& got, const Curve& expected,
                                     const Bounds& bounds = {});

}  // namespace weft
