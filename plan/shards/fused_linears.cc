#include "plan/shards/fused_linears.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

// Index in the bucket of the tensor whose name ends so; as many as there are: there is none.
size_t Find(const Bucket& bucket, absl::string_view ending) {
  size_t i = 0;
  while (i < bucket.shards.size() && !absl::EndsWith(bucket.shards[i].tensor.name, ending)) ++i;
  return i;
}

// Says whether the layers' tensors `part` ("weight") are one run, in this order.
bool AreOneRun(const Bucket& bucket, std::initializer_list<absl::string_view> layers,
               absl::string_view part) {
  const size_t none = bucket.shards.size();
  size_t before = none;
  for (const absl::string_view layer : layers) {
    const size_t at = Find(bucket, absl::StrCat(layer, ".", part));
    if (at == none) return false;
    const bool follows =
        before == none ||
        bucket.offsets[before] + bucket.shards[before].elements() == bucket.offsets[at];
    if (!follows) return false;
    before = at;
  }
  return true;
}

bool CanBeOne(const Bucket& bucket, std::initializer_list<absl::string_view> layers) {
  const bool has_bias = Find(bucket, absl::StrCat(*layers.begin(), ".bias")) < bucket.shards.size();
  return AreOneRun(bucket, layers, "weight") && (!has_bias || AreOneRun(bucket, layers, "bias"));
}

}  // namespace

FusedLinears LinearsOfOneRun(absl::Span<const Bucket> buckets) {
  for (const Bucket& bucket : buckets) {
    if (bucket.shards.front().tensor.part != ModelPart::kBlock) continue;
    return {.qkv = CanBeOne(bucket, {".attn.q", ".attn.k", ".attn.v"}),
            .gate_up = CanBeOne(bucket, {".mlp.gate", ".mlp.up"})};
  }
  return {};
}

FusedLinears JointsOf(const BlockOps& block) {
  const auto has = [&](absl::string_view joint) {
    return std::any_of(block.ops.begin(), block.ops.end(),
                       [&](const BlockOp& op) { return op.joint == joint; });
  };
  return {.qkv = has("qkv"), .gate_up = has("gate_up")};
}

FusedLinears FusedLinearsOf(const FusedLinears& joints, const FusedLinears& runs,
                            const Fp8Layers& fp8, bool asks_cudnn_of_documents) {
  return {.qkv = joints.qkv && runs.qkv && fp8.query == fp8.key && !asks_cudnn_of_documents,
          .gate_up = joints.gate_up && runs.gate_up};
}

BlockOps FusedOpsOf(const ModelShape& model, int64_t block, const FusedLinears& fused) {
  BlockOps ops = OpsOf(model, block);
  if (fused.qkv) ops = Fuse(std::move(ops), "qkv");
  if (fused.gate_up) ops = Fuse(std::move(ops), "gate_up");
  return ops;
}

}  // namespace weft
