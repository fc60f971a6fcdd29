// ChunkReader: texts of files, cut into chunks of whole documents (of a long document: parts), in
// the order of the files. Where it cuts depends on the bytes alone, so that a reader that starts
// behind any chunk goes on as the first one would have. One thread at a time.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/prepare/byte_source.h"
#include "data/prepare/text_kind.h"

struct XXH3_state_s;

namespace weft {

struct TextInput {
  std::string path;
  TextFormat format = TextFormat::kJsonl;
  int64_t stored_bytes = 0;  // 0: a stream
};

// A TextPosition is a place between two chunks.
struct TextPosition {
  int64_t input = 0;
  int64_t byte = 0;  // unpacked
  int64_t line = 1;
  uint64_t hash = 0;  // of the bytes before it, in an input that can only be read from its start
  friend bool operator==(const TextPosition&, const TextPosition&) = default;
};

struct TextChunk {
  int64_t input = 0;
  int64_t first_line = 1;
  std::string bytes;
  bool begins = true;        // with a document; else with more of the one before
  bool ends = true;          // with the end of a document
  bool is_too_long = false;  // a row of more than kMostRowBytes, without its bytes
  TextPosition after;
  int64_t stored_bytes = 0;  // of this input, read so far
};

// A row of jsonl, a line and a paragraph have at most so many bytes.
inline constexpr int64_t kMostRowBytes = int64_t{32} << 20;
inline constexpr size_t kChunkBytes = size_t{256} << 10;

struct ChunkOptions {
  DocumentCut cut = DocumentCut::kFile;  // of inputs that are text
  size_t chunk_bytes = kChunkBytes;
  const std::atomic<bool>* stop = nullptr;
};

class ChunkReader {
 public:
  // Errors of Next name the path: ByteSource's, and FailedPrecondition if what lies before `begin`
  // is not what it was.
  ChunkReader(std::vector<TextInput> inputs, const TextPosition& begin,
              const ChunkOptions& options);
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // nullopt: there is nothing more.
  absl::StatusOr<std::optional<TextChunk>> Next();

 private:
  bool is_whole_file() const;
  absl::Status OpenInput();
  absl::Status SkipTo(const TextPosition& place);
  absl::StatusOr<size_t> FindCut(bool* ends);
  size_t LastCut(absl::string_view text) const;
  absl::Status SkipRow(TextChunk* chunk);
  void Consume(size_t bytes);

  const std::vector<TextInput> inputs_;
  const ChunkOptions options_;
  TextPosition at_;
  std::unique_ptr<ByteSource> source_;  // of inputs_[at_.input]; null: not opened
  bool is_within_ = false;              // a part of its document has been given
  bool is_hashed_ = false;
  XXH3_state_s* hash_ = nullptr;
  std::string carried_;  // bytes from at_.byte on
};

}  // namespace weft
