// Read-only token files: any file as bytes (one token per byte), llm.c .bin, nanoGPT .bin. Mapped,
// never loaded whole; untrusted: sizes and headers are checked at open. Immutable after Open. All
// integers are little-endian.
//
//   bytes    token i is byte i, an id in [0, 256)
//   nanogpt  no header, u16[n] or u32[n], as data.dtype says
//   llmc     i32[256] header {magic, version, n, 0...}, then u16[n] (magic 20240520, version 1) or
//            u32[n] (magic 20240801, version 7); the size is 1024 + n * item size, nothing more
//   megatron no header, u16[n] or i32[n], as the .idx beside it says (data/megatron_index.h), whose
//            pointers are followed to the end
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/spec/job_spec.h"

namespace weft {

// A TokenEncoding says how ids lie in a file.
struct TokenEncoding {
  TokenFormat format = TokenFormat::kBytes;
  // nullopt: as the header says; uint16 without one.
  std::optional<TokenDtype> dtype = {};
  int64_t vocab_size = 0;  // ids are below it; 0: not known
};
TokenEncoding EncodingOf(const JobSpec& job);

// The .idx that belongs to a .bin of Megatron-LM: "corpus.idx" of "corpus.bin".
std::string MegatronIndexOf(const std::string& path);

class TokenFile {
 public:
  // NotFound / PermissionDenied / InvalidArgument: "path: what was found, what was expected". Ids
  // of the wrong width would train on nonsense: what the content looks like is judged, too
  // (data/token_judge.h).
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path,
                                                         const TokenEncoding& encoding);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }
  // Copies tokens [first, first + out.size()). An id above 2^31 - 1 reads as 2^31 - 1, which no
  // vocabulary holds. REQUIRES: in range.
  void Read(int64_t first, absl::Span<int32_t> out) const;
  // Size and xxh3-64: "1048576:0123456789abcdef". Resume compares it. All bytes of a file of up to
  // 16 MiB are hashed; of a longer one 64 blocks of 64 KiB, evenly spread, the first and the last
  // among them: what changes less than a 64th of it in one place may pass unseen, and a start reads
  // 4 MiB of each file.
  std::string Fingerprint() const;

 private:
  TokenFile() = default;
  absl::Status ReadHeader(const TokenEncoding& encoding);
  absl::Status ReadNoHeader(const TokenEncoding& encoding);
  absl::Status ReadLlmcHeader();
  absl::Status ReadIndexBeside();
  absl::Status CheckDtype(const TokenEncoding& encoding, absl::string_view where) const;

  std::string path_;
  const uint8_t* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
  int64_t header_bytes_ = 0;
  int64_t item_bytes_ = 1;
  int64_t tokens_ = 0;
};

}  // namespace weft
