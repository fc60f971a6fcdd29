#include "tests/worker/painting_device.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"

namespace weft {
namespace {

// A NaN in fp32, bf16 and fp16: whatever reads it, spreads it.
constexpr std::array<unsigned char, 2> kPaint = {0xc1, 0x7f};
constexpr unsigned char kGap = 0xa5;

// Model states start as zeros, and gradients are cleared and reduced with the gaps between them. A
// block's codes of weights are made before they are read.
bool IsPainted(const BufferSpec& spec) {
  return absl::StartsWith(spec.name, "block") ||
         (spec.kind != MemoryKind::kWeights && spec.kind != MemoryKind::kMasterWeights &&
          spec.kind != MemoryKind::kGradients && spec.kind != MemoryKind::kOptimizer);
}

bool DiesWithItsAction(const BufferSpec& spec) {
  return spec.kind == MemoryKind::kWorkspace && !absl::StartsWith(spec.name, "work/rotary") &&
         spec.name != "work/totals";
}

// Rows of tokens and positions that no text of a test reaches have neither gradient nor moments.
bool MayEndInZeros(const BufferSpec& spec) {
  return (spec.kind == MemoryKind::kGradients || spec.kind == MemoryKind::kOptimizer) &&
         absl::EndsWith(spec.name, "/embedding");
}

// Whether any of the last `elements` is other than it was when the run began.
bool HasNewEnd(const BufferSpec& spec, const unsigned char* data, int64_t elements) {
  const int64_t end = spec.elements * ElementBytes(spec.type);
  for (int64_t i = std::max<int64_t>(0, end - elements * ElementBytes(spec.type)); i < end; ++i) {
    if (data[i] != (IsPainted(spec) ? kPaint[static_cast<size_t>(i % 2)] : 0)) return true;
  }
  return false;
}

}  // namespace

PaintingDevice::PaintingDevice(RankMemory memory, int64_t alignment_elements, Device& inner,
                               std::vector<std::string>* findings)
    : PassingDevice(inner), alignment_elements_(alignment_elements), findings_(findings) {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  for (BufferSpec& spec : memory.buffers) {
    int64_t& offset_bytes = spec.home == MemoryHome::kHost ? host_bytes : device_bytes;
    const int64_t bytes = spec.aligned_bytes();
    buffers_.push_back({std::move(spec), offset_bytes});
    offset_bytes += bytes;
  }
}

void* PaintingDevice::Allocate(int64_t bytes) {
  base_ = static_cast<unsigned char*>(inner_.Allocate(bytes));
  return base_;
}

void PaintingDevice::Free(void* data, int64_t bytes) {
  Look();
  for (const std::string& name : overrun_) findings_->push_back("overrun: " + name);
  for (const Painted& buffer : buffers_) {
    if (!buffer.used) findings_->push_back("not used to its end: " + buffer.spec.name);
  }
  inner_.Free(data, bytes);
}

void* PaintingDevice::AllocateHost(int64_t bytes) {
  host_base_ = static_cast<unsigned char*>(inner_.AllocateHost(bytes));
  return host_base_;
}

void PaintingDevice::FreeHost(void* data, int64_t bytes) {
  Look();
  host_base_ = nullptr;
  inner_.FreeHost(data, bytes);
}

// Gradients are looked at whenever some are cleared: those of a unit that is 0 for all tokens of
// the last step say nothing.
void PaintingDevice::Zero(View x) {
  if (is_painted_) Look();
  inner_.Zero(x);
  if (x.data == base_ && !std::exchange(is_painted_, true)) Paint(/*all=*/true);
}

void PaintingDevice::Embed(View ids, View table, int64_t first_id, View positions,
                           View position_ids, View out) {
  Repaint();
  inner_.Embed(ids, table, first_id, positions, position_ids, out);
}

void PaintingDevice::EmbedGradient(View ids, View dout, int64_t first_id, View position_ids,
                                   View dtable, View dpositions) {
  inner_.EmbedGradient(ids, dout, first_id, position_ids, dtable, dpositions);
  Repaint();
}

void PaintingDevice::Paint(bool all) {
  for (const Painted& buffer : buffers_) {
    if (!(all ? IsPainted(buffer.spec) : DiesWithItsAction(buffer.spec))) continue;
    unsigned char* const data = BaseOf(buffer) + buffer.offset_bytes;
    const int64_t bytes = buffer.spec.elements * ElementBytes(buffer.spec.type);
    for (int64_t i = 0; i < bytes; ++i) data[i] = kPaint[static_cast<size_t>(i % 2)];
    if (all) std::fill(data + bytes, data + buffer.spec.aligned_bytes(), kGap);
  }
}

void PaintingDevice::Repaint() {
  Look();
  Paint(/*all=*/false);
}

void PaintingDevice::Look() {
  for (Painted& buffer : buffers_) {
    if (!IsThere(buffer)) continue;
    const unsigned char* const data = BaseOf(buffer) + buffer.offset_bytes;
    const int64_t end_elements = IsPainted(buffer.spec) ? 1 : alignment_elements_;
    buffer.used =
        buffer.used || MayEndInZeros(buffer.spec) || HasNewEnd(buffer.spec, data, end_elements);
    if (!IsPainted(buffer.spec)) continue;
    const int64_t bytes = buffer.spec.elements * ElementBytes(buffer.spec.type);
    const bool whole = std::all_of(data + bytes, data + buffer.spec.aligned_bytes(),
                                   [](unsigned char byte) { return byte == kGap; });
    if (!whole && std::find(overrun_.begin(), overrun_.end(), buffer.spec.name) == overrun_.end()) {
      overrun_.push_back(buffer.spec.name);
    }
  }
}

}  // namespace weft
