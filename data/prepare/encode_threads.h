// EncodeThreads: chunks of text are read in order, encoded by many threads, and given back in
// order. Threads run until this goes.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "data/prepare/chunk_encoder.h"
#include "data/prepare/chunk_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

// A chunk on its way counts as so many times its bytes: text, what parsing and encoding take, and
// ids.
inline constexpr int64_t kBytesPerChunkByte = 16;
inline constexpr int64_t kMostBytesInFlight = int64_t{384} << 20;

class EncodeThreads {
 public:
  // All outlive this.
  EncodeThreads(int threads, const std::vector<TextInput>* inputs, const Tokenizer* tokenizer,
                const EncodeRules* rules, ChunkReader* reader);
  ~EncodeThreads();
  EncodeThreads(const EncodeThreads&) = delete;
  EncodeThreads& operator=(const EncodeThreads&) = delete;

  enum class Turn { kChunk, kNotYet, kEnd };
  // Waits up to `most_ms` for the next chunk in the order of the text, into *chunk. The reader's
  // error, once all before it was given.
  absl::StatusOr<Turn> Take(int most_ms, EncodedChunk* chunk);

 private:
  // A chunk that has been read, in its turn.
  struct Read {
    int64_t number = 0;
    int64_t cost_bytes = 0;
    TextChunk chunk;
  };
  struct Done {
    int64_t cost_bytes = 0;
    EncodedChunk chunk;
  };
  void Run();
  std::optional<Read> ReadNext();

  const std::vector<TextInput>* const inputs_;
  const Tokenizer* const tokenizer_;
  const EncodeRules* const rules_;
  std::mutex read_mutex_;  // guards the reader, and the order of its chunks
  ChunkReader* const reader_;
  std::mutex mutex_;  // guards all below
  std::condition_variable has_room_, has_chunk_;
  int64_t num_read_ = 0;
  bool is_read_ = false;      // nothing more comes from the reader
  absl::Status read_status_;  // and why
  bool ends_ = false;
  int64_t bytes_in_flight_ = 0;
  int64_t num_taken_ = 0;
  std::map<int64_t, Done> done_;
  std::vector<std::jthread> threads_;
};

}  // namespace weft
