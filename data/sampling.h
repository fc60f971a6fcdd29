// Dataset: the run's samples in order. Sample i is a window of seq_len + 1 tokens; which window
// depends on (files, seq_len, seed, i) alone, never on ranks or layout. There is no index to build:
// the order of an epoch is a keyed permutation evaluated at i in O(1).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/token_file.h"
#include "plan/job_spec.h"

namespace weft {

// A bijection of [0, size) keyed by `key`: Feistel rounds with cycle walking.
// REQUIRES: 0 <= index < size.
int64_t Permute(int64_t size, uint64_t key, int64_t index);

class Dataset {
 public:
  // `train` or held-out samples of the job. For held-out samples the order is the files' own (not
  // shuffled). FailedPrecondition if a file is shorter than one window; InvalidArgument if a token
  // id is outside the vocabulary is found later, by Sample.
  static absl::StatusOr<Dataset> Open(const JobSpec& job, bool train);

  int64_t windows() const { return windows_; }  // samples per epoch
  // Fills tokens (ids) [seq_len] and targets (the next token of each) [seq_len].
  // InvalidArgument naming file, position and id if an id is not below vocab_size.
  absl::Status Sample(int64_t sample, absl::Span<int32_t> tokens,
                      absl::Span<int32_t> targets) const;
  // One "path size:hash" per file; resume compares.
  std::vector<std::string> Fingerprints() const;

 private:
  Dataset() = default;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<int64_t> first_window_;  // of each file, running sum
  int64_t windows_ = 0;
  int64_t skipped_windows_ = 0;  // held-out part: windows before it
  int64_t seq_len_ = 0;
  int64_t vocab_size_ = 0;
  uint64_t seed_ = 0;
  bool shuffle_ = true;
};

}  // namespace weft
