// The plain values of preparing: what is asked for, how far the work is, what it has counted. Pure.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/prepare/chunk_reader.h"
#include "data/prepare/input_stamp.h"
#include "data/tokenizer/tokenizer.h"
#include "plan/spec/words.h"

namespace weft {

// Files of tokens that are written: Megatron-LM's .bin with its .idx, and the .bin of nanoGPT and
// of llm.c.
enum class TokenOutput { kMegatron, kNanogpt, kLlmc };
Words WordsOf(TokenOutput);

// EncodeRules are what the ids depend on beside texts and tokenizer.
struct EncodeRules {
  std::string text_key = "text";               // of a row of jsonl
  std::string text_key_option = "--text-key";  // messages name by it what states that
  DocumentCut documents = DocumentCut::kFile;
  Specials specials = Specials::kText;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kRefuse;
  std::vector<int32_t> before, after;  // of each document
  int64_t item_bytes = 2;              // of an id
};

// Bytes of an id in a file: Megatron-LM writes 32 bits from a vocabulary of 65,500 on, the others
// from more than 65,536.
int64_t ItemBytes(TokenOutput output, int64_t vocab_size);

struct PrepareCounts {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t text_bytes = 0;  // of what was encoded
  int64_t empty = 0;       // documents without a text, which are left out
  int64_t bad_rows = 0;
  int64_t shortest = 0;  // tokens of a document
  int64_t longest = 0;
  int64_t cut_documents = 0;  // longer than a sequence
  int64_t cut_tokens = 0;     // of them, beyond it

  // Counts a document. seq_len 0: not known.
  void Add(int64_t document_tokens, int64_t seq_len);
  friend bool operator==(const PrepareCounts&, const PrepareCounts&) = default;
};
nlohmann::ordered_json CountsJson(const PrepareCounts& counts);

// PrepareState is how far the work is: all before `next` is in the files.
struct PrepareState {
  std::string work;   // what it is work on: WorkHash
  std::string stamp;  // StampHash of the inputs
  TextPosition next;
  int64_t open_tokens = 0;      // of a document that goes on
  int64_t open_text_bytes = 0;  // and of its text
  bool is_dropping = false;     // a part of that document was bad: the rest is left out, too
  PrepareCounts counts;
  bool may_replace = false;  // begun with the leave to replace what is there
  bool is_complete = false;  // the files are whole, and perhaps not yet in their places
  friend bool operator==(const PrepareState&, const PrepareState&) = default;
};
std::string StateText(const PrepareState& state);
// InvalidArgument: it is none, or of another version of weft.
absl::StatusOr<PrepareState> ParseState(absl::string_view text);

// Returns a hash of everything that the written bytes depend on. `tokenizer`: a hash of its files.
std::string WorkHash(absl::string_view tokenizer, TokenOutput output, const EncodeRules& rules,
                     const std::vector<InputStamp>& inputs, int64_t seq_len);

}  // namespace weft
