#include "data/sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr int kRounds = 6;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

uint64_t EpochKey(uint64_t seed, int64_t epoch) {
  return Mix(seed + (static_cast<uint64_t>(epoch) + 1) * kGolden);
}

uint64_t Feistel(int half_bits, uint64_t key, uint64_t x) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = x >> half_bits;
  uint64_t right = x & mask;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    const uint64_t scrambled = Mix(key + round * kGolden + Mix(right)) & mask;
    left = std::exchange(right, left ^ scrambled);
  }
  return left << half_bits | right;
}

// Windows of the last part of the training files that are kept for validation.
int64_t HeldOut(const DataSpec& data, int64_t windows) {
  if (data.split <= 0 || !data.valid.empty()) return 0;
  const double share = std::floor(data.split * static_cast<double>(windows));
  return std::max<int64_t>(1, static_cast<int64_t>(share));
}

}  // namespace

int64_t Permute(int64_t size, uint64_t key, int64_t index) {
  CHECK(0 <= index && index < size);
  if (size == 1) return 0;
  int half_bits = 1;
  while (half_bits < 31 && (int64_t{1} << (2 * half_bits)) < size) ++half_bits;
  CHECK(size <= int64_t{1} << (2 * half_bits));
  uint64_t x = static_cast<uint64_t>(index);
  // Ends: the network permutes, so walking on from a point below `size` comes back below `size`.
  do {
    x = Feistel(half_bits, key, x);
  } while (x >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(x);
}

absl::Status Dataset::AddFile(const std::string& path, const TokenEncoding& encoding) {
  ASSIGN_OR_RETURN(std::unique_ptr<TokenFile> file, TokenFile::Open(path, encoding));
  const int64_t windows = (file->tokens() - 1) / seq_len_;
  if (windows < 1 && too_short_.empty()) {
    too_short_ = absl::StrCat(path, ": holds ", file->tokens(),
                              " tokens, expected at least seq_len + 1 = ", seq_len_ + 1,
                              "; use a longer file or a smaller training.seq_len");
  }
  first_window_.push_back(windows_);
  windows_ += windows;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<Dataset> Dataset::Open(const JobSpec& job, bool train) {
  CHECK(job.training.seq_len >= 1);
  const bool own_files = !train && !job.data.valid.empty();
  const std::vector<DataSource>& sources = own_files ? job.data.valid : job.data.train;
  Dataset dataset;
  dataset.seq_len_ = job.training.seq_len;
  dataset.vocab_size_ = job.model.vocab_size;
  dataset.seed_ = job.training.seed;
  dataset.shuffle_ = train;
  for (const DataSource& source : sources) {
    RETURN_IF_ERROR(dataset.AddFile(source.path, EncodingOf(job)));
  }
  if (dataset.files_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("data.", own_files ? "valid" : "train", ": no file is named"));
  }
  // A file that is too short among others has no window, and so no part in the order.
  if (dataset.windows_ == 0) return absl::FailedPreconditionError(dataset.too_short_);
  if (own_files) return dataset;

  const int64_t held_out = HeldOut(job.data, dataset.windows_);
  if (train && held_out >= dataset.windows_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.split: ", job.data.split, " holds out all ", dataset.windows_,
        " windows of data.train, nothing is left to train on; use a smaller split or more data"));
  }
  if (!train && held_out == 0) {
    return absl::FailedPreconditionError(
        "data.valid: nothing is held out; name files in data.valid or set data.split");
  }
  if (!train) dataset.skipped_windows_ = dataset.windows_ - held_out;
  dataset.windows_ = train ? dataset.windows_ - held_out : held_out;
  return dataset;
}

absl::Status Dataset::Sample(int64_t sample, absl::Span<int32_t> tokens,
                             absl::Span<int32_t> targets) const {
  CHECK(sample >= 0);
  CHECK(std::ssize(tokens) == seq_len_ && std::ssize(targets) == seq_len_);
  const int64_t epoch = sample / windows_;
  const int64_t index = sample % windows_;
  const int64_t window =
      skipped_windows_ + (shuffle_ ? Permute(windows_, EpochKey(seed_, epoch), index) : index);
  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), window);
  const size_t file_index = static_cast<size_t>(after - first_window_.begin()) - 1;
  const TokenFile& file = *files_[file_index];
  const int64_t first = (window - first_window_[file_index]) * seq_len_;
  file.Read(first, tokens);
  file.Read(first + 1, targets);
  for (int64_t i = 0; i <= seq_len_; ++i) {
    const int32_t id = i == 0 ? tokens[0] : targets[static_cast<size_t>(i) - 1];
    if (id >= vocab_size_) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), ": token ", first + i, ": found id ", id, ", expected below vocab_size ",
          vocab_size_, "; check data.format, data.dtype and model.vocab_size"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> Dataset::Fingerprints() const {
  std::vector<std::string> fingerprints;
  for (const auto& file : files_) {
    fingerprints.push_back(absl::StrCat(file->path(), " ", file->Fingerprint()));
  }
  return fingerprints;
}

}  // namespace weft
