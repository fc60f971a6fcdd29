// The cache of token files: what a text's tokens are is worked out once, whoever asks for it and
// under whichever path the text lies. A file's name in the cache is a hash of the text's bytes, of
// the tokenizer's and of the rules, so that a text that changes has another; what a file holds
// never changes. Any number of processes may ask at once: one works, the others wait for it.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
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
  std::optional<int64_t> bos, eos;  // around each document; nullopt: as the tokenizer has it
};

// How messages name what the one who asks can change.
struct CacheWords {
  std::string cache = "data.cache", text_key = "text_key";
  std::string begin = "data.bos_token_id", end = "data.eos_token_id";
  std::string end_cure = "name the token's id with data.eos_token_id";
  std::string id_cure = "use an id that it has";
};

struct CacheRequest {
  std::string folder;  // made if need be
  CacheRules rules;
  int threads = 1;
  bool may_work = true;  // false: only what is there already, and nothing is written
  std::function<void(const PrepareProgress&)> on_progress;
  const std::atomic<bool>* stop = nullptr;
  // Work of another user that does not change for so long is not waited for.
  std::chrono::milliseconds most_idle = std::chrono::minutes(10);
  CacheWords words = {};
};

struct NamedText {
  std::string path;
  TextFormat format = TextFormat::kJsonl;
  std::string text_key = "text";  // of a row of jsonl
};

struct CachedTokens {
  std::string path;        // a file of ids without a header
  int64_t item_bytes = 2;  // of each
  int64_t vocab_size = 0;  // of the tokenizer
};

// $XDG_CACHE_HOME/weft/tokens, or that of ~/.cache; empty: neither is known.
std::string DefaultTokenCache();

// Returns the folder of a cache that a file of tokens lies in; empty: it is none of a cache's.
std::string CacheOfTokens(const std::string& path);

// Returns how many bytes the tokens of so many bytes of text may take: a token takes 3 bytes of it
// or more, and a packed text is 4 times as long.
int64_t RoomForTokens(int64_t stored_bytes, bool is_packed, int64_t item_bytes);

// A TokenCache finds the token files of a request, or makes them. It is used by one thread.
class TokenCache {
 public:
  explicit TokenCache(CacheRequest request) : request_(std::move(request)) {}

  // Returns the tokens of a text that is tokenised already; nullopt: it is not, or without may_work
  // that is not known. Errors of the text, of the tokenizer and of CheckCacheFolder.
  absl::StatusOr<std::optional<CachedTokens>> Find(const NamedText& text);
  // The tokenizer's, which is opened for it.
  absl::StatusOr<int64_t> VocabSize();
  // Makes the tokens of a text, or waits for who does, which on_progress is told. Errors are
  // Prepare's and CheckTrustedFile's; ResourceExhausted if the folder's disk has not the room.
  // REQUIRES: may_work.
  absl::StatusOr<CachedTokens> Make(const NamedText& text);

 private:
  // A place is where a text's tokens lie or would lie.
  struct Place {
    std::vector<InputStamp> stamps;
    std::string key, output;
  };
  absl::StatusOr<std::optional<Place>> PlaceOf(const NamedText& text);
  absl::StatusOr<std::optional<std::string>> ContentHash(const std::string& path,
                                                         const std::vector<InputStamp>& stamps);
  absl::Status OpenTokenizer();

  const CacheRequest request_;
  std::optional<Tokenizer> tokenizer_;  // once it is needed
  std::string tokenizer_hash_;
  std::map<std::string, std::string> contents_;  // hashes of texts, by their stamps'
};

}  // namespace weft
