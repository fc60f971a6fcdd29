#include "worker/arena.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

DType DTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFp32:
      return DType::kF32;
    case ElementType::kInt32:
      return DType::kI32;
    case ElementType::kBf16:
      return DType::kBf16;
    case ElementType::kFp16:
      return DType::kF16;
    case ElementType::kUint8:
      return DType::kU8;
  }
  CHECK(false);
  return DType::kF32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(const RankMemory& memory, Device& device) {
  auto arena = std::unique_ptr<Arena>(new Arena(device));
  int64_t offset_bytes = 0;
  for (const BufferSpec& spec : memory.buffers) {
    const Buffer buffer{.kind = spec.kind,
                        .offset_bytes = offset_bytes,
                        .elements = spec.elements,
                        .dtype = DTypeOf(spec.type),
                        .end_bytes = offset_bytes + spec.aligned_bytes()};
    const bool is_new = arena->buffers_.emplace(spec.name, buffer).second;
    CHECK(is_new);
    offset_bytes = buffer.end_bytes;
  }
  CHECK(offset_bytes == memory.total_bytes() && offset_bytes > 0);
  arena->block_ = static_cast<char*>(device.Allocate(offset_bytes));
  if (arena->block_ == nullptr) {
    const BackendStatus cause = device.Synchronize();
    return absl::FailedPreconditionError(absl::StrCat(
        "device memory: ", offset_bytes,
        " bytes are planned for this worker, but the device does not have them; use a smaller "
        "training.micro_batch_size or more workers",
        cause.ok() ? "" : absl::StrCat(" (", cause.text, ")")));
  }
  arena->bytes_ = offset_bytes;
  device.Zero({.data = arena->block_, .rows = 1, .cols = offset_bytes / 4});
  return arena;
}

Arena::~Arena() {
  if (block_ != nullptr) device_.Free(block_, bytes_);
}

View Arena::Get(absl::string_view name, int64_t rows, int64_t cols) {
  const auto found = buffers_.find(name);
  if (found == buffers_.end() || found->second.elements != rows * cols) {
    const std::string asked = absl::StrCat(name, " [", rows, ", ", cols, "]");
    std::fprintf(stderr, "arena: %s is not planned\n", asked.c_str());
    CHECK(false);
  }
  found->second.used = true;
  return {.data = block_ + found->second.offset_bytes,
          .rows = rows,
          .cols = cols,
          .dtype = found->second.dtype};
}

View Arena::Whole(MemoryKind kind) const {
  int64_t begin = bytes_;
  int64_t end = 0;
  int64_t sum = 0;
  for (const auto& [name, buffer] : buffers_) {
    if (buffer.kind != kind) continue;
    begin = std::min(begin, buffer.offset_bytes);
    end = std::max(end, buffer.end_bytes);
    sum += buffer.end_bytes - buffer.offset_bytes;
  }
  if (sum == 0) return {};
  CHECK(end - begin == sum);
  return {.data = block_ + begin, .rows = 1, .cols = sum / 4};
}

absl::Status Arena::CheckAllUsed() const {
  for (const auto& [name, buffer] : buffers_) {
    if (!buffer.used) {
      return absl::InternalError(absl::StrCat("arena: ", name, " is planned but never used"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
