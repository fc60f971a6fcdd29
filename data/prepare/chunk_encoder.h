// ChunkEncoder: the documents of a chunk of text, as ids as they lie in a file. Pure but for its
// own memory. One thread; any number of encoders may share a tokenizer.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/prepare/chunk_reader.h"
#include "data/prepare/prepared.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

struct BadRow {
  int64_t input = 0;
  int64_t line = 0;
  std::string why;
};

struct EncodedChunk {
  std::string ids;                  // EncodeRules::item_bytes each, little-endian
  std::vector<int64_t> lengths;     // in tokens, of the documents or of the part
  bool begins = true, ends = true;  // as TextChunk's
  bool is_bad = false;              // the part: its document is left out, as one bad row
  std::vector<BadRow> bad_rows;     // left out
  int64_t text_bytes = 0;
  int64_t empty = 0;
  TextPosition after;
  int64_t input = 0;
  int64_t stored_bytes = 0;
};

class ChunkEncoder {
 public:
  // Both outlive this.
  ChunkEncoder(const Tokenizer* tokenizer, const EncodeRules* rules);
  ~ChunkEncoder();

  EncodedChunk Encode(TextChunk chunk, TextFormat format);

 private:
  struct RowParser;
  void EncodeRows(TextChunk* chunk, EncodedChunk* encoded);
  void EncodeLines(const TextChunk& chunk, EncodedChunk* encoded);
  void EncodeParagraphs(const TextChunk& chunk, EncodedChunk* encoded);
  void EncodePart(const TextChunk& chunk, EncodedChunk* encoded);
  void EncodeDocument(absl::string_view text, int64_t line, EncodedChunk* encoded);
  absl::Status EncodeText(absl::string_view text);
  void Put(int64_t tokens, EncodedChunk* encoded);

  const Tokenizer* const tokenizer_;
  const EncodeRules* const rules_;
  TokenizerScratch scratch_;
  std::vector<int32_t> ids_;  // of one document
  std::unique_ptr<RowParser> parser_;
};

}  // namespace weft
