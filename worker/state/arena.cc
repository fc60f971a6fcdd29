#include "worker/state/arena.h"

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
    case ElementType::kFp64:
      return DType::kF64;
  }
  CHECK(false);
  return DType::kF32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(const RankMemory& memory, Device& device) {
  auto arena = std::unique_ptr<Arena>(new Arena(device));
  for (const BufferSpec& spec : memory.buffers) {
    int64_t& end_bytes = arena->BlockOf(spec.home).bytes;
    const Buffer buffer{.kind = spec.kind,
                        .home = spec.home,
                        .offset_bytes = end_bytes,
                        .elements = spec.elements,
                        .dtype = DTypeOf(spec.type),
                        .end_bytes = end_bytes + spec.aligned_bytes()};
    const bool is_new = arena->buffers_.emplace(spec.name, buffer).second;
    CHECK(is_new);
    end_bytes = buffer.end_bytes;
  }
  CHECK(arena->bytes() == memory.total_bytes() && arena->bytes() > 0);
  CHECK(arena->host_bytes() == memory.host_bytes());
  RETURN_IF_ERROR(arena->Allocate());
  return arena;
}

absl::Status Arena::Allocate() {
  device_.data = static_cast<char*>(backend_.Allocate(device_.bytes));
  if (device_.data == nullptr) {
    const BackendStatus cause = backend_.Synchronize();
    return absl::FailedPreconditionError(absl::StrCat(
        "device memory: ", device_.bytes,
        " bytes are planned for this worker, but the device does not have them; use a smaller "
        "training.micro_batch_size or more workers",
        cause.ok() ? "" : absl::StrCat(" (", cause.text, ")")));
  }
  backend_.Zero({.data = device_.data, .rows = 1, .cols = device_.bytes / 4});
  if (host_.bytes == 0) return absl::OkStatus();
  host_.data = static_cast<char*>(backend_.AllocateHost(host_.bytes));
  if (host_.data != nullptr) return absl::OkStatus();
  const BackendStatus cause = backend_.Synchronize();
  return absl::FailedPreconditionError(absl::StrCat(
      "host memory: ", host_.bytes,
      " bytes of optimizer states are planned for this worker, but this host does not have them "
      "for it; use offload.optimizer none, a higher parallelism.zero_stage or more nodes",
      cause.ok() ? "" : absl::StrCat(" (", cause.text, ")")));
}

Arena::~Arena() {
  if (host_.data != nullptr) {
    backend_.Synchronize();  // what fails now has been reported
    backend_.FreeHost(host_.data, host_.bytes);
  }
  if (device_.data != nullptr) backend_.Free(device_.data, device_.bytes);
}

View Arena::Get(absl::string_view name, int64_t rows, int64_t cols) {
  const auto found = buffers_.find(name);
  if (found == buffers_.end() || found->second.elements != rows * cols) {
    const std::string asked = absl::StrCat(name, " [", rows, ", ", cols, "]");
    std::fprintf(stderr, "arena: %s is not planned\n", asked.c_str());
    CHECK(false);
  }
  found->second.used = true;
  return {.data = BlockOf(found->second.home).data + found->second.offset_bytes,
          .rows = rows,
          .cols = cols,
          .dtype = found->second.dtype};
}

View Arena::Row(absl::string_view name) {
  const auto found = buffers_.find(name);
  return Get(name, 1, found == buffers_.end() ? 0 : found->second.elements);
}

View Arena::Whole(MemoryKind kind) const {
  int64_t begin = bytes();
  int64_t end = 0;
  int64_t sum = 0;
  for (const auto& [name, buffer] : buffers_) {
    if (buffer.kind != kind || buffer.home != MemoryHome::kDevice) continue;
    begin = std::min(begin, buffer.offset_bytes);
    end = std::max(end, buffer.end_bytes);
    sum += buffer.end_bytes - buffer.offset_bytes;
  }
  if (sum == 0) return {};
  CHECK(end - begin == sum);
  return {.data = device_.data + begin, .rows = 1, .cols = sum / 4};
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
