// Dataset: the run's samples in order. Sample i is a window of seq_len + 1 tokens; which window
// depends on (files, seq_len, seed, i) alone, never on ranks or layout. There is no index to build:
// the order of an epoch is a keyed permutation evaluated at i in O(1).
//
// The definition, complete enough to be written again elsewhere (tests/reference does). All
// arithmetic is on u64, modulo 2^64.
//
// Windows. T = seq_len. A file of n tokens has w = (n - 1) / T windows; its window k is the tokens
// [k*T, k*T + T]: inputs are the first T of them, targets the last T, so each token is a target
// at most once; a file of fewer tokens has none. Windows of a run are numbered through its files in
// the order of the job. With data.split = s and no data.valid, of W windows the last
// H = max(1, floor(s * W)) are held out, the first W - H train.
//
// Order. With N windows, sample i is window i % N of epoch e = i / N. Held-out samples are taken as
// they lie. A training epoch is shuffled: its window is Permute(N, key(e), i % N), where
//
//   key(e) = Mix(seed + (e + 1) * G)           G = 0x9E3779B97F4A7C15
//   Mix(z): z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
//           z = (z ^ (z >> 27)) * 0x94D049BB133111EB
//           return z ^ (z >> 31)               // SplitMix64 (Steele et al., OOPSLA'14)
//
// Permute(size, key, x): size 1 gives 0. Otherwise h is the least integer >= 1 with 4^h >= size. A
// balanced Feistel network of 6 rounds permutes [0, 4^h): left = x >> h, right = x & (2^h - 1), and
// for round r = 0..5
//
//   (left, right) = (right, left ^ (Mix(key + (r + 1) * G + Mix(right)) & (2^h - 1)))
//
// then x = left << h | right. While x >= size the network is applied again (cycle walking: Black &
// Rogaway, CT-RSA'02), which stays a bijection and takes less than 4 rounds on average, because
// 4^h < 4 * size.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/token_file.h"
#include "plan/spec/job_spec.h"

namespace weft {

// A bijection of [0, size) keyed by `key`, as above. REQUIRES: 0 <= index < size.
int64_t Permute(int64_t size, uint64_t key, int64_t index);

// Immutable after Open; Sample may be called from any thread.
class Dataset {
 public:
  // `train` or held-out samples of the job. FailedPrecondition if no file is as long as one
  // window, or if nothing is left to train on or to hold out. Errors of the files are TokenFile's.
  static absl::StatusOr<Dataset> Open(const JobSpec& job, bool train);

  int64_t windows() const { return windows_; }  // samples per epoch
  // Fills tokens (ids) [seq_len] and targets (the next token of each) [seq_len].
  // InvalidArgument naming file, position and id if an id is not below vocab_size.
  // REQUIRES: sample >= 0, both spans hold seq_len.
  absl::Status Sample(int64_t sample, absl::Span<int32_t> tokens,
                      absl::Span<int32_t> targets) const;
  // One "path size:hash" per file; resume compares.
  std::vector<std::string> Fingerprints() const;

 private:
  Dataset() = default;
  absl::Status AddFile(const std::string& path, const TokenEncoding& encoding);

  std::vector<std::unique_ptr<TokenFile>> files_;
  std::string too_short_;              // of the first file without a window; empty: there is none
  std::vector<int64_t> first_window_;  // of each file, running sum
  int64_t windows_ = 0;
  int64_t skipped_windows_ = 0;  // held-out part: windows before it
  int64_t seq_len_ = 0;
  int64_t vocab_size_ = 0;
  uint64_t seed_ = 0;
  bool shuffle_ = true;
};

}  // namespace weft
