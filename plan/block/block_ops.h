// A transformer block as data: operations on named values and parameters, in the order in which a
// forward pass does them. OpsOf alone knows what a model's blocks are made of. The tensors of a
// model (plan/block/tensors) and the buffers of a block (plan/block/block_buffers) follow from the
// list; nobody states them again. Pure values; safe from any thread.
//
// Sizes are those of the whole, unsharded block: a Dim says how many there are and where an axis of
// the rank grid may cut them. Letters: glossary.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {

enum class DimCut {
  kWhole,         // nowhere: each rank has all of it
  kTensor,        // over tp; where there are fewer units than ranks, neighbours hold copies
  kExpertTensor,  // over the tp of experts
};

// The extent of a tensor or a value along one direction.
struct Dim {
  int64_t count = 1;
  int64_t unit = 1;  // cuts fall on multiples of this: one head's elements
  DimCut cut = DimCut::kWhole;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// Returns how much of `dim` the tp rank `tp_index` has. Cuts are as even as possible in units,
// earlier ranks take the remainder.
int64_t LocalCount(const Dim& dim, const Layout& layout, int tp_index);

// Rows of a value: which tokens of a microbatch a rank has it for.
enum class Rows {
  kPart,    // R, this rank's part of the residuals' tokens: N, or N / tp (sequence parallelism)
  kTokens,  // N = B * T / cp
  kRouted,  // copies of tokens that this rank's experts are sent
};

// A BlockValue with this place lies in memory of its own.
inline constexpr int kOwnPlace = -1;

// A matrix [rows, cols] that operations take and give.
struct BlockValue {
  absl::string_view name = {};  // "norm1_out"; a buffer is called after it
  Rows rows = Rows::kTokens;
  Dim cols;                   // count 0: as many as those have that lie in it (Fuse)
  bool is_statistic = false;  // fp32, whatever activations are
  // Index of the value in whose memory this one lies: as columns of a wider one (Fuse), or in the
  // place of one that nobody needs any more.
  int place = kOwnPlace;
  friend bool operator==(const BlockValue&, const BlockValue&) = default;
};

// A trained tensor of the block: a weight [out, in], or a vector [out].
struct BlockParam {
  std::string name = {};  // "attn.q.weight"
  Dim out = {};
  Dim in = {.count = 0};  // count 0: a vector
  int64_t experts = 0;    // so many of it, a `*` in its name stands for each one's index; 0: one
  GradientSum sum = GradientSum::kNone;
  InitialValue initial = InitialValue::kNormal;
  double initial_std = 0;  // for kNormal
  friend bool operator==(const BlockParam&, const BlockParam&) = default;
};

enum class OpKind {
  kNorm,       // in: x; out: LayerNorm or RMSNorm of it; statistics: mean of the former, 1 / std
  kHeadNorm,   // the same of each head by itself
  kWideNorm,   // the same of all heads together, over which tp cuts them
  kLinear,     // in: x; out: x W' + b
  kRotate,     // in: queries or keys; out: turned by their position, in place
  kJoinHeads,  // in: parts of each head, one of them maybe shared by all; out: heads
  kAttention,  // in: q, k, v; out: softmax(q k') v over the window; statistics: log of the sums of
               // exponentials
  kScale,      // in: x; out: x times the operation's factor
  kAdd,        // in: a residual and what is added; out: the sum, in the place of the latter, of
               // which each may be a term by itself
  kGelu,       // in: x; out: its activation, likewise:
  kSquaredRelu,
  kErfGelu,
  kSwiGlu,     // in: gate, up; out: silu(gate) up, likewise:
  kGeGlu,      // gelu(gate) up
  kRoute,      // in: logits of all experts; out: shares of the chosen ones
  kDispatch,   // in: x; out: a row for each expert that a token is sent to
  kCombine,    // in: rows of experts, shares; out: their sum by token
  kScaleRows,  // in: x, a logit for each row; out: x sigmoid(logit)
};

// A rule says, by kind of operation, what a gradient reads and where it may be put. Of `in`, `out`
// and statistics the gradient of the inputs reads those named here; that of the weights reads `in`.
struct OpRule {
  bool input_reads_in = false;
  bool input_reads_out = false;
  bool reads_statistics = false;
  bool weight_reads_in = false;
  // The outputs are made again under selective recompute: they cost little beside products.
  bool is_cheap = false;
  enum class Gradient {
    kOwn,          // each input's gradient has a place of its own
    kPasses,       // that of the output is that of each input
    kOfLastInput,  // that of the output becomes that of the last input in its place
  } gradient = Gradient::kOwn;
};
const OpRule& RuleOf(OpKind kind);

struct BlockOp {
  OpKind kind = OpKind::kLinear;
  std::vector<int> in = {}, out = {}, statistics = {};  // indices of values
  std::vector<int> params = {};                         // indices of parameters
  // Linear layers with one name here follow each other, read the same input and may be one product
  // (Fuse); the name is that of the wide output. Empty: this one is by itself.
  absl::string_view joint = {};
  double factor = 1;             // of kScale
  int64_t window = 0;            // of kAttention: ModelShape::window_of
  bool turns = true;             // of kRotate; else its output is its input
  bool are_interleaved = false;  // of kRotate: ModelShape::interleaved_rotation
  int angles = 0;                // of kRotate: ModelShape::rotation_of
  friend bool operator==(const BlockOp&, const BlockOp&) = default;
};

struct BlockOps {
  std::vector<BlockValue> values;  // the first is the block's input
  std::vector<BlockParam> params;  // in the order of checkpoints and buckets
  std::vector<BlockOp> ops;
  int output = 0;

  // Index of the value whose memory holds `value`: its own, or at the end of BlockValue::place.
  int PlaceOf(int value) const;
  friend bool operator==(const BlockOps&, const BlockOps&) = default;
};

// Returns the operations of block `block` of the model. REQUIRES: CheckModel holds.
BlockOps OpsOf(const ModelShape& model, int64_t block);

// Blocks with equal lists are of one kind. REQUIRES: kinds differ in what operations are told
// (window, turns, angles), in no value or parameter, as the engine's do.
struct BlockLists {
  std::vector<BlockOps> kinds;  // in the order of their first blocks
  std::vector<size_t> of_block;

  const BlockOps& of(int64_t block) const { return kinds[of_block[static_cast<size_t>(block)]]; }
};
// `ops`: the list of a block, of 0 to `blocks` - 1.
BlockLists ListsOf(int64_t blocks, const std::function<BlockOps(int64_t block)>& ops);

// Makes one operation with one wide output of the linear layers whose BlockOp::joint is `joint`:
// values that were outputs of these are its columns, one after the other in the order of values.
BlockOps Fuse(BlockOps block, absl::string_view joint);

}  // namespace weft
