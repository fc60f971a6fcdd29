// The cache of token files: what a text's tokens are is worked out once, whoever asks for it and
// under whichever path the text lies. A file's name in the cache is a hash of the text's bytes, of
// the tokenizer's and of the rules, so that a text that changes has another; what a file holds
// never changes. Any number of processes may ask at once: one works, the others wait for it.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/prepare/prepare.h"
#include "data/prepare/text_kind.h"

namespace weft {

// How a job has its texts tokenised.
struct CacheRules {
  std::string tokenizer;            // its path
  std::optional<int64_t> bos, eos;  // around each document; neither: as the tokenizer has it
};

struct CacheRequest {
  std::string folder;  // made if need be
  CacheRules rules;
  int threads = 1;
  bool may_work = true;  // false: only what is there already
  std::function<void(const PrepareProgress&)> on_progress;
  const std::atomic<bool>* stop = nullptr;
};

struct CachedTokens {
  std::string path;        // a file of ids without a header
  int64_t item_bytes = 2;  // of each
  int64_t vocab_size = 0;  // of the tokenizer
  bool was_there = true;
};

// $XDG_CACHE_HOME/weft/tokens, or that of ~/.cache; empty: neither is known.
std::string DefaultTokenCache();

// Returns the tokens of a file of text; nullopt: they are not there, and may_work is false. Errors
// are Prepare's; ResourceExhausted if the folder's disk has not the room.
absl::StatusOr<std::optional<CachedTokens>> TokensOfText(const std::string& text, TextFormat format,
                                                         const CacheRequest& request);

}  // namespace weft
