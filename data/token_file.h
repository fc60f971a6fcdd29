// Read-only token files: any file as bytes (one token per byte), llm.c .bin, nanoGPT .bin. Mapped,
// never loaded whole; untrusted: sizes and headers are checked at open. Immutable after Open.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/job_spec.h"

namespace weft {

class TokenFile {
 public:
  // NotFound / PermissionDenied / InvalidArgument: "path: what was found, what was expected".
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path,
                                                         TokenFormat format);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }
  // Copies tokens [first, first + out.size()). REQUIRES: in range.
  void Read(int64_t first, absl::Span<int32_t> out) const;
  // Size and xxh3-64 of the first and last MiB: "1048576:0123456789abcdef". Resume compares it.
  std::string Fingerprint() const;

 private:
  TokenFile() = default;
  std::string path_;
  TokenFormat format_ = TokenFormat::kBytes;
  const uint8_t* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
  int64_t header_bytes_ = 0;
  int64_t item_bytes_ = 1;
  int64_t tokens_ = 0;
};

}  // namespace weft
