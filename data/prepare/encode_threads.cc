#include "data/prepare/encode_threads.h"

#include <chrono>
#include <utility>

namespace weft {

EncodeThreads::EncodeThreads(int threads, const std::vector<TextInput>* inputs,
                             const Tokenizer* tokenizer, const EncodeRules* rules,
                             ChunkReader* reader)
    : inputs_(inputs), tokenizer_(tokenizer), rules_(rules), reader_(reader) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

EncodeThreads::~EncodeThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  has_room_.notify_all();
  threads_.clear();  // joins
}

// Holds the reader until there is room for what it has read: the chunk that is due next is always
// on its way, so room comes.
std::optional<EncodeThreads::Read> EncodeThreads::ReadNext() {
  const std::lock_guard reading(read_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (ends_ || is_read_) return std::nullopt;
  }
  absl::StatusOr<std::optional<TextChunk>> chunk = reader_->Next();
  std::unique_lock lock(mutex_);
  if (!chunk.ok() || !*chunk) {
    is_read_ = true;
    read_status_ = chunk.status();
    has_chunk_.notify_all();
    return std::nullopt;
  }
  Read read;
  read.chunk = **std::move(chunk);
  read.cost_bytes = std::ssize(read.chunk.bytes) * kBytesPerChunkByte;
  has_room_.wait(lock, [&] {
    return ends_ || bytes_in_flight_ == 0 ||
           bytes_in_flight_ + read.cost_bytes <= kMostBytesInFlight;
  });
  if (ends_) return std::nullopt;
  bytes_in_flight_ += read.cost_bytes;
  read.number = num_read_++;
  return read;
}

void EncodeThreads::Run() {
  ChunkEncoder encoder(tokenizer_, rules_);
  while (std::optional<Read> read = ReadNext()) {
    const TextFormat format = (*inputs_)[static_cast<size_t>(read->chunk.input)].format;
    EncodedChunk encoded = encoder.Encode(std::move(read->chunk), format);
    const std::lock_guard lock(mutex_);
    done_[read->number] = {read->cost_bytes, std::move(encoded)};
    has_chunk_.notify_all();
  }
}

absl::StatusOr<EncodeThreads::Turn> EncodeThreads::Take(int most_ms, EncodedChunk* chunk) {
  std::unique_lock lock(mutex_);
  const auto is_next = [&] { return !done_.empty() && done_.begin()->first == num_taken_; };
  const auto is_over = [&] { return is_read_ && num_taken_ == num_read_; };
  has_chunk_.wait_for(lock, std::chrono::milliseconds(most_ms),
                      [&] { return is_next() || is_over(); });
  if (is_next()) {
    const auto first = done_.begin();
    *chunk = std::move(first->second.chunk);
    bytes_in_flight_ -= first->second.cost_bytes;
    done_.erase(first);
    ++num_taken_;
    has_room_.notify_all();
    return Turn::kChunk;
  }
  if (!is_over()) return Turn::kNotYet;
  if (!read_status_.ok()) return read_status_;
  return Turn::kEnd;
}

}  // namespace weft
