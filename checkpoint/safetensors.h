// The safetensors format (huggingface/safetensors): 8-byte little-endian header length, JSON
// header, tensors back to back. F32, BF16 and F16 when writing. Readers take untrusted bytes and
// refuse what the format does not allow.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<int64_t> dims;
  int64_t begin = 0;  // byte offsets in the data buffer
  int64_t end = 0;
};

// A header says this once it has kept every rule: tensors tile [0, data_bytes) in this order.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// `json` is the header's text, `data_bytes` what follows it in the file. DataLoss "header: found,
// expected". Pure.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> dims;
  absl::Span<const float> values;  // row-major, product(dims) of them
  std::string dtype = "F32";  // or BF16, F16: each value is rounded to the nearest, ties to even
};

struct WrittenFile {
  int64_t bytes = 0;
  std::string xxh3;  // 32 hex digits: xxh3-128 of the whole file
};

// Writes `path` and fsyncs it (not its folder). Tensors are laid out by name, "format": "pt" is
// added to `metadata`, and the data begins at a multiple of 8. ResourceExhausted on a full disk;
// nothing is left at `path` on failure. `folder`: others may put links below it (folder_entry.h);
// empty: into the file's own folder. REQUIRES: names differ.
absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                             absl::Span<const TensorToWrite> tensors,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::string& folder = "");

// Says whether a tensor's elements are F32, BF16 or F16: floats can hold them.
bool IsFloat(const StoredTensor& tensor);

// A mapped file. Reads touch only the bytes asked for. Immutable after Open.
class SafetensorsFile {
 public:
  // DataLoss with "path: where: found, expected" if the file breaks a rule of the format.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const StoredTensor* Find(const std::string& name) const;  // null if absent
  // Copies `count` elements from flat index `first` as floats. REQUIRES: IsFloat, in range.
  void Read(const StoredTensor& tensor, int64_t first, int64_t count, float* out) const;

 private:
  SafetensorsFile() = default;
  absl::Status ParseMapped();

  const uint8_t* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
  int64_t data_offset_ = 0;
  SafetensorsHeader header_;
  std::map<std::string, size_t> index_;  // name -> place in header_.tensors
};

// xxh3-64: the key of a tensor's initial weights.
uint64_t NameKey(const std::string& name);

}  // namespace weft
