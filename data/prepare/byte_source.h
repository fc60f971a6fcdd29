// ByteSource: the bytes of a file or a stream, unpacked if it is packed with gzip or zstd (any
// number of members or frames, one after the other). What a packed file says of itself is bounded:
// its window is at most 128 MiB, and a file that ends too early is an error. One thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/prepare/text_kind.h"

namespace weft {

// The path of a stream that is no file.
inline constexpr char kStandardInput[] = "-";

class ByteSource {
 public:
  // `path`: a regular file, a pipe, or kStandardInput. *stop ends the waiting for a pipe. NotFound,
  // PermissionDenied or InvalidArgument, with the path: it cannot be opened, or is nothing to read.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path,
                                                          const std::atomic<bool>* stop);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Appends up to `most` bytes; fewer only at the end. DataLoss: the packed file is damaged or cut;
  // Cancelled: *stop.
  absl::Status Append(size_t most, std::string* out);
  // A file that is not packed: its bytes are reached without reading those before.
  bool is_seekable() const;
  // Goes on at that byte. REQUIRES: is_seekable().
  absl::Status Seek(int64_t byte);

  bool at_end() const { return at_end_; }
  int64_t stored_bytes_read() const { return stored_bytes_; }  // of the file as it lies

 private:
  struct Unpacking;
  ByteSource(std::string path, int fd, const std::atomic<bool>* stop);
  absl::Status Begin();
  absl::Status Fill();
  absl::StatusOr<size_t> Unpack(char* to, size_t most);
  absl::StatusOr<size_t> Gunzip(char* to, size_t most);
  absl::StatusOr<size_t> Unzstd(char* to, size_t most);
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  const int fd_;
  const std::atomic<bool>* const stop_;
  Packing packing_ = Packing::kNone;
  std::unique_ptr<Unpacking> unpacking_;
  std::string stored_;    // as read and not yet unpacked
  size_t stored_at_ = 0;  // the first byte of it that counts
  int64_t stored_bytes_ = 0;
  bool stored_ends_ = false;
  bool at_end_ = false;
};

}  // namespace weft
