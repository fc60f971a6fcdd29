// The safetensors format (huggingface/safetensors): 8-byte header length, JSON header, tensors. F32
// only when writing. Readers take untrusted bytes and refuse what the format does not allow.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft {

struct StoredTensor {
  std::string name;
  std::string dtype;          // "F32"
  std::vector<int64_t> dims;
  int64_t begin = 0;          // byte offsets in the data buffer
  int64_t end = 0;
};

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> dims;
  absl::Span<const float> values;  // row-major, product(dims) of them
};

struct WrittenFile {
  int64_t bytes = 0;
  std::string xxh3;  // 32 hex digits: xxh3-128 of the whole file
};

// Writes `path` and fsyncs it. `metadata` goes into __metadata__. ResourceExhausted on a full disk.
absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                             absl::Span<const TensorToWrite> tensors,
                                             const std::map<std::string, std::string>& metadata);

// A mapped file. Reads touch only the bytes asked for.
class SafetensorsFile {
 public:
  // DataLoss with "path: offset: found, expected" if the header breaks a rule of the format.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const StoredTensor* Find(const std::string& name) const;  // null if absent
  // Copies `count` floats of an F32 tensor from flat index `first`. REQUIRES: in range.
  void Read(const StoredTensor& tensor, int64_t first, int64_t count, float* out) const;

 private:
  SafetensorsFile() = default;
  const uint8_t* mapped_ = nullptr;
  int64_t mapped_bytes_ = 0;
  int64_t data_offset_ = 0;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// xxh3-128 of a file, 32 hex digits.
absl::StatusOr<std::string> HashFile(const std::string& path);
// xxh3-64: the key of a tensor's initial weights.
uint64_t NameKey(const std::string& name);

}  // namespace weft
