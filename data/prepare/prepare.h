// Prepare: files of text become files of tokens, by all cores, in the order of the texts: the same
// bytes whatever the number of threads. What a killed run has done is kept, and the next one goes
// on from there (prepared_files.h). Bounded memory: texts on their way take at most
// kMostBytesInFlight, and a row that alone takes more is encoded alone.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/prepare/prepared.h"
#include "data/prepare/prepared_files.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

struct PrepareProgress {
  int64_t text_bytes = 0;    // encoded by this process
  int64_t stored_bytes = 0;  // of the inputs as they lie, from their start
  int64_t all_stored_bytes = 0;
  int64_t tokens = 0;      // in the files
  bool is_over = false;    // told once, at the end, whatever that is
  std::string waits = {};  // for whom, and in which folder: nothing is worked on; told once
};

struct PrepareRequest {
  std::vector<TextInput> inputs;
  EncodeRules rules;
  PreparedPlace place;
  std::string tokenizer;            // its path
  std::string tokenizer_hash = {};  // TokenizerHash of it; empty: not known yet
  std::string work = {};  // names the work; empty: the inputs as they lie, and the options, do
  std::vector<InputStamp> stamps = {};  // of the inputs when `work` was named; empty: as they lie
  int threads = 1;
  int64_t most_bad_rows = 0;  // one more ends the work
  // Work that ends so, or at a damaged text (which is InvalidArgument then), is thrown away: `work`
  // names it by the text's bytes, and the mended text is other work.
  bool discards_bad = false;
  std::string bad_row_cure = "mend it";
  size_t chunk_bytes = kChunkBytes;
  // How much is written between two points that a killed run goes on from.
  int64_t commit_bytes = int64_t{64} << 20;
  std::function<void(const PrepareProgress&)> on_progress;  // a few times a second
  std::function<void(const std::string& where, const std::string& why)> on_bad_row;
  const std::atomic<bool>* stop = nullptr;
};

struct PrepareResult {
  PrepareCounts counts;
  bool was_there = false;        // nothing was to be done
  int64_t documents_before = 0;  // of work that this one went on with
  double took_s = 0;
};

// Returns a hash of the files that a tokenizer is opened from.
absl::StatusOr<std::string> TokenizerHash(const std::string& path);

// InvalidArgument: a text is wrong, "path:line: why", or it was written to meanwhile, or there is
// no document, and the work is thrown away; Cancelled: *stop, what was done is kept; AlreadyExists:
// the work is done, of a stream that cannot be compared; else as ChunkReader, FindPrepared and
// PreparedFiles say.
absl::StatusOr<PrepareResult> Prepare(const Tokenizer& tokenizer, const PrepareRequest& request);

}  // namespace weft
