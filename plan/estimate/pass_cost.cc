#include "plan/estimate/pass_cost.h"

#include <algorithm>
#include <cmath>

#include "plan/block/flops.h"
#include "plan/estimate/block_share.h"
#include "plan/estimate/collective.h"
#include "plan/estimate/kernel_time.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/state_bytes.h"
#include "plan/shards/shard.h"
#include "plan/spec/fp8.h"

namespace weft {
namespace {

// Flash attention's backward pass: 2.5 times the work of the forward pass, at less of its rate
// (arXiv:2307.08691, 4.1).
constexpr double kFusedBackwardWork = 2.5 / 0.85;

// Everything that passes ask about one layout.
struct Pass {
  Pass(const Question& asked, const Layout& cut)
      : Pass(asked, cut, MachineOf(asked), ShareOf(asked.model, cut)) {}

  // `on`, `of_block`: what the other one finds out.
  Pass(const Question& asked, const Layout& cut, const Machine& on, const BlockShare& of_block)
      : question(asked),
        layout(cut),
        habits(asked.engine.time),
        machine(on),
        share(of_block),
        sharing(CoreSharing(asked.cluster, cut.world_size())),
        sequence(static_cast<double>(asked.batch.seq_len)),
        visible(MeanVisibleKeys(asked.model, asked.batch.seq_len)),
        tokens(static_cast<double>(cut.micro_batch_size) * sequence / cut.cp),
        rows(cut.sequence_parallel ? tokens / cut.tp : tokens),
        tensor_group(GroupOf(machine, cut.tp, 1, cut.world_size())),
        gated(asked.model.is_gated()),
        biased(asked.model.ffn_bias),
        fused(machine.gpu && habits.fused_attention),
        casts_to_fp8(asked.numerics.precision == Precision::kFp8 && habits.casts_operands_to_fp8) {
    if (!casts_to_fp8) {
      in_16_bits = machine;
      return;
    }
    fp8 = Fp8LayersOf(asked.model, asked.batch, cut);
    in_16_bits = MachineOf(asked, Precision::kBf16);
  }

  // Tokens whose router and low ranks a rank computes, which tp does not cut: those of its part of
  // the sequence, as engines with experts share sequences wherever they share heads. The products
  // of a block are then the same whichever way sequence_parallel goes.
  double own_tokens() const { return tokens / layout.tp; }
  double wide_bytes() const { return machine.element_bytes * tokens * share.width; }

  const Question& question;
  const Layout& layout;
  const TimeHabits& habits;
  Machine machine;
  BlockShare share;
  double sharing;   // by how much workers on the same cores slow each other
  double sequence;  // T
  double visible;   // keys that a token sees, on average over tokens and blocks
  double tokens;    // of a microbatch on one rank
  double rows;      // tokens that its norms and residuals see
  PricedGroup tensor_group;
  bool gated, biased, fused;
  // Not all products are in 8 bits: which are, and the machine for the others.
  bool casts_to_fp8;
  Fp8Layers fp8;
  Machine in_16_bits;

  const Machine& of_product(bool in_fp8) const {
    return in_fp8 || !casts_to_fp8 ? machine : in_16_bits;
  }
};

// A communication of which a share hides behind the compute of its own pass that hides no other.
double Exposed(double comm_s, double hidden_share, double compute_s) {
  return comm_s - std::min(hidden_share * comm_s, compute_s);
}

LinearSeconds& operator+=(LinearSeconds& sum, const LinearSeconds& other) {
  sum.forward_s += other.forward_s;
  sum.input_gradient_s += other.input_gradient_s;
  sum.weight_gradient_s += other.weight_gradient_s;
  return sum;
}

LinearSeconds LatentMatmuls(const Pass& pass) {
  const BlockShare& share = pass.share;
  const Machine& machine = pass.of_product(pass.fp8.query);
  LinearSeconds sum;
  if (share.query_rank > 0) {
    sum += LinearLayer(machine, pass.own_tokens(), share.query_rank, share.width);
    sum += LinearLayer(machine, pass.tokens, share.query, share.query_rank);
  } else {
    sum += LinearLayer(machine, pass.tokens, share.query, share.width);
  }
  sum += LinearLayer(machine, pass.own_tokens(), share.kv_down, share.width);
  sum += LinearLayer(machine, pass.tokens, share.kv_up, share.kv_rank);
  return sum;
}

LinearSeconds BlockMatmuls(const Pass& pass) {
  const BlockShare& share = pass.share;
  const Machine& machine = pass.machine;
  const double tokens = pass.tokens;
  const Machine& attention = pass.of_product(pass.fp8.query);
  const Machine& mlp = pass.of_product(pass.fp8.mlp);
  LinearSeconds sum;
  if (share.kv_rank > 0) {
    sum = LatentMatmuls(pass);
  } else {
    sum = LinearLayer(attention, tokens, share.query + 2 * share.key_value, share.width);
  }
  sum += LinearLayer(attention, tokens, share.width, share.value);
  if (share.inner > 0) {
    sum += LinearLayer(mlp, tokens, share.up, share.width);
    sum += LinearLayer(mlp, tokens, share.width, share.inner);
  }
  if (share.experts > 0) {
    sum += LinearLayer(machine, pass.own_tokens(), share.experts * pass.layout.ep, share.width);
    const double routed = tokens * share.copies / share.experts;
    LinearSeconds expert = LinearLayer(machine, routed, share.expert_up, share.width);
    expert += LinearLayer(machine, routed, share.width, share.expert_inner);
    sum.forward_s += share.experts * expert.forward_s;
    sum.input_gradient_s += share.experts * expert.input_gradient_s;
    sum.weight_gradient_s += share.experts * expert.weight_gradient_s;
  }
  return sum;
}

struct BothPasses {
  double forward_s = 0;
  double backward_s = 0;
};

// A communication, less what of a pass's compute hides of it.
struct PartlyHidden {
  BothPasses exposed, hidden;
};

// The products q k^T and with v, of all pairs where scores are stored, else of those that are seen.
BothPasses AttentionCore(const Pass& pass) {
  const Machine& machine = pass.machine;
  const MatmulHabits& matmul = pass.habits.matmul;
  const double each_key = 2 * pass.tokens * (pass.share.query + pass.share.value);
  const double seen_pairs = each_key * pass.visible;
  const int64_t head_dim = pass.question.model.head_dim;
  const double odd_rate = machine.gpu && head_dim % 8 != 0 ? matmul.odd_size_rate : 1;
  if (pass.fused) {
    const bool newer = pass.question.cluster.device.Offers(Precision::kFp8);
    const double kernels = newer ? pass.habits.old_attention_rate : 1;
    const double forward_s = seen_pairs / (odd_rate * kernels * machine.attention_flops_per_s);
    const bool slower = machine.gpu && pass.question.deterministic && machine.element_bytes < 4;
    const double rate = slower ? pass.habits.ordered_attention_rate : 1;
    return {forward_s, kFusedBackwardWork * forward_s / rate};
  }
  if (!machine.gpu) {
    const double forward_s = seen_pairs / machine.attention_flops_per_s;
    return {forward_s, 2 * forward_s};
  }
  // Products of a batch of heads, like any others, with head_dim as an inner or outer size.
  const auto inner = static_cast<double>(head_dim);
  const double rate = odd_rate * (inner / (inner + matmul.half_rate_inner));
  const double forward_s = each_key * pass.sequence / (rate * machine.matmul_flops_per_s);
  return {forward_s, 2 * forward_s};
}

// Scores that are written and read back.
BothPasses StoredScores(const Pass& pass) {
  if (pass.fused) return {};
  const double stored = pass.machine.gpu ? pass.sequence : pass.visible;
  const double bytes = pass.machine.element_bytes * pass.share.heads * pass.tokens * stored;
  return {StreamingSeconds(pass.machine, bytes * pass.habits.score_passes_forward),
          StreamingSeconds(pass.machine, bytes * pass.habits.score_passes_backward)};
}

// Elements that kernels beside the products read and write in a forward pass.
struct BlockElements {
  double rows = 0;   // norms, residual sums, as wide as these: tp cuts them by sequence or not
  double inner = 0;  // biases and activation inside the block, tokens sorted for their experts
};

BlockElements ElementsOf(const Pass& pass) {
  const BlockShare& share = pass.share;
  const double qkv = share.attended();
  const double routed = share.copies;
  const double inner = share.inner + routed * share.expert_inner;
  const double norms = pass.question.model.norms_of_block();  // each reads x and writes y
  const double residuals = share.summed * 3 * share.width;    // read both, write the sum
  const double biases = pass.biased ? 2 * (qkv + inner) : 0;
  const double wide_biases = pass.biased ? 2 * 2 * share.width : 0;
  const double activation = pass.gated ? 3 * inner : 2 * inner;
  const double routing = 2 * 2 * routed * share.width;  // to the experts' order and back
  // Norms over queries and keys; of latent attention over what they are made of, and the key with
  // position put beside that without.
  double attended = pass.question.model.qk_norms ? 2 * (share.query + share.key_value) : 0;
  if (share.kv_rank > 0) attended += 2 * 2 * share.query;
  const double ranks = 2 * (share.query_rank + share.kv_rank);
  return {.rows = pass.rows * (2 * norms * share.width + residuals + wide_biases + ranks),
          .inner = pass.tokens * (biases + activation + routing + attended)};
}

// The time that they take, by what the engine's kernels fuse.
BothPasses ElementSeconds(const Pass& pass) {
  const BlockElements elements = ElementsOf(pass);
  const TimeHabits& habits = pass.habits;
  const auto seconds = [&](double rows, double inner) {
    return StreamingSeconds(
        pass.machine, pass.machine.element_bytes * (rows * elements.rows + inner * elements.inner));
  };
  return {seconds(habits.row_streaming_forward, habits.streaming_forward),
          seconds(habits.row_streaming_backward, habits.streaming_backward)};
}

// Returns what ElementSeconds save where products of 16-bit elements do bias, residual and GELU
// themselves (worker/backend/device.h); those of 8 bits do not. Only the other term of a residual
// sum is moved, unless a sum over tp comes first; of GELU only its input is written, which its
// gradient reads.
BothPasses FusedSeconds(const Pass& pass) {
  const bool narrow = pass.machine.gpu && pass.machine.element_bytes < 4;
  if (!narrow || !pass.habits.fused_epilogues) return {};
  const BlockShare& share = pass.share;
  const auto seconds = [&](double elements) {
    return StreamingSeconds(pass.machine, pass.machine.element_bytes * elements);
  };
  const double query = pass.fp8.query ? 0 : share.query;
  const double key_value = pass.fp8.key ? 0 : share.key_value;
  const double inner = pass.fp8.mlp ? 0 : share.inner;
  const double sums =
      std::min(share.summed, 2.0 - (pass.fp8.query ? 1 : 0) - (pass.fp8.mlp ? 1 : 0));
  const double residuals = pass.layout.tp == 1 ? sums * 2 * share.width : 0;
  if (!pass.biased) return {seconds(pass.rows * residuals), 0};
  const double biases = 2 * (query + 2 * key_value + inner);
  return {seconds(pass.rows * 2 * residuals + pass.tokens * (biases + inner)),
          seconds(pass.tokens * 2 * inner)};
}

// Frozen weights of 8 or 4 bits are made 16 bits wide before each product that reads them: read
// packed, written wide (the product itself reads them from there).
double DequantizeSeconds(const Pass& pass) {
  if (!pass.question.adapters) return 0;
  const FrozenFormat format = pass.question.adapters->frozen;
  if (format == FrozenFormat::kBf16) return 0;
  const double packed_bytes = FrozenBytes(format);
  constexpr double kWideBytes = 2;
  const BlockShare& share = pass.share;
  double attention = share.width * (2 * share.query + 2 * share.key_value);
  if (share.kv_rank > 0) {
    const double query = share.query_rank > 0 ? share.query_rank * (share.width + share.query)
                                              : share.width * share.query;
    attention = query + share.width * (share.kv_down + share.value) + share.kv_rank * share.kv_up;
  }
  const double weights =
      attention + share.width * (share.up + share.inner +
                                 share.experts * (share.expert_up + share.expert_inner));
  return StreamingSeconds(pass.machine, weights * (packed_bytes + kWideBytes));
}

struct CastSeconds {
  double forward_s = 0;
  double backward_s = 0;
  double weight_gradient_s = 0;  // of it, where the pass is split
  double forward_casts = 0, backward_casts = 0;
};

// An operand in 8 bits is read twice, for its largest magnitude and for its codes, which are
// written once or both ways (worker/state/fp8_linear.cc), by so many kernels
// (worker/backend/cuda/kernels/fp8.cu).
constexpr double kCastKernels = 3;
double CastOf(const Pass& pass, double elements, double ways) {
  constexpr double kWide = 2, kCode = 1;
  return StreamingSeconds(pass.machine, elements * (2 * kWide + ways * kCode));
}

// Inputs, and gradients of outputs; weights are CodesOfWeights. An input is cast once for all
// layers that take it, an output's gradient once for both products; that zb_h1, which splits them,
// casts it for each is left out: the search prices a block once for all schedules.
CastSeconds CastsToFp8(const Pass& pass) {
  CastSeconds cast;
  const BlockShare& share = pass.share;
  const auto take = [&](double in) {
    const double input_s = CastOf(pass, pass.tokens * in, 1);
    cast.forward_s += input_s;
    cast.backward_s += input_s;
    cast.weight_gradient_s += input_s;
    cast.forward_casts += 1;
    cast.backward_casts += 1;
  };
  const auto give = [&](double out) {
    cast.backward_s += CastOf(pass, pass.tokens * out, 2);
    cast.weight_gradient_s += CastOf(pass, pass.tokens * out, 1);
    cast.backward_casts += 1;
  };
  if (pass.fp8.query || pass.fp8.key) take(share.width);
  if (pass.fp8.query && pass.fp8.key) {
    give(share.query + 2 * share.key_value);
  } else if (pass.fp8.query) {
    give(share.query);
  } else if (pass.fp8.key) {
    give(share.key_value);
    give(share.key_value);
  }
  if (pass.fp8.query) {
    take(share.query);
    give(share.width);
  }
  if (pass.fp8.mlp) {
    take(share.width);
    give((pass.gated ? 2 : 1) * share.inner);
    take(share.inner);
    give(share.width);
  }
  return cast;
}

// Tensor parallelism of one block (arXiv:1909.08053, 3; with sequence parallelism arXiv:2205.05198,
// 4.2.2: the backward pass gathers inputs again for their weight gradients).
BothPasses TensorComm(const Pass& pass) {
  if (pass.layout.tp == 1) return {};
  const double bytes = pass.wide_bytes();
  const bool sums_rows = pass.question.model.wide_qk_norms;  // of queries and keys: their squares
  const double rows_s =
      sums_rows ? 2 * AllReduceSeconds(pass.machine, pass.tensor_group, 4 * pass.tokens) : 0;
  if (!pass.layout.sequence_parallel) {
    const double sum_s = AllReduceSeconds(pass.machine, pass.tensor_group, bytes);
    return {pass.share.summed * sum_s + rows_s, pass.share.gathered * sum_s + rows_s};
  }
  const double gather_s = AllGatherSeconds(pass.machine, pass.tensor_group, bytes);
  const double scatter_s = ReduceScatterSeconds(pass.machine, pass.tensor_group, bytes);
  const double in = pass.share.gathered_parts(), out = pass.share.summed_parts();
  BothPasses both = {in * gather_s + out * scatter_s + rows_s,
                     (in + out) * gather_s + in * scatter_s + rows_s};
  const int etp = pass.layout.expert_tp();
  if (pass.share.experts > 0 && etp > 1) {
    // Experts that several ranks share: what each was sent is gathered among them, and kept whole.
    const PricedGroup group = GroupOf(pass.machine, etp, 1, pass.layout.world_size());
    const double routed =
        pass.machine.element_bytes * pass.tokens * pass.share.copies * pass.share.width;
    const double pair_s = AllGatherSeconds(pass.machine, group, routed) +
                          ReduceScatterSeconds(pass.machine, group, routed);
    both.forward_s += pair_s;
    both.backward_s += pair_s;
  }
  return both;
}

// Keys and values of whole sequences, before attention. By rank they lie in other order than by
// position: each whole tensor is read and written once more.
BothPasses GatheredContext(const Pass& pass) {
  const double bytes =
      pass.machine.element_bytes * pass.tokens * pass.layout.cp * pass.share.key_value;
  const PricedGroup group =
      GroupOf(pass.machine, pass.layout.cp, pass.layout.tp, pass.layout.world_size());
  const double sort_s = pass.sharing * StreamingSeconds(pass.machine, 2 * bytes);
  const double gather_s = AllGatherSeconds(pass.machine, group, bytes) + sort_s;
  const double scatter_s = ReduceScatterSeconds(pass.machine, group, bytes) + sort_s;
  return {2 * gather_s, 2 * gather_s + 2 * scatter_s};
}

// Keys and values pass around the ring under the attention of what has arrived (arXiv:2310.01889);
// gradients travel with them on the way back.
PartlyHidden ContextComm(const Pass& pass, const BothPasses& attention) {
  const int cp = pass.layout.cp;
  if (cp == 1) return {};
  if (pass.habits.gathers_keys) return {.exposed = GatheredContext(pass), .hidden = {}};
  const BlockShare& share_of = pass.share;
  const double kv = share_of.kv_rank > 0 ? share_of.query + share_of.value : 2 * share_of.key_value;
  const double bytes = pass.machine.element_bytes * pass.tokens * kv;
  const int world = pass.layout.world_size();
  const double hop_s = SendSeconds(pass.machine, pass.layout.tp * cp, world, bytes);
  const double hops = cp - 1;
  const double share = hops / cp;  // of the attention, that has something to wait behind
  const BothPasses hidden = {std::min(hops * hop_s, share * attention.forward_s),
                             std::min(2 * hops * hop_s, share * attention.backward_s)};
  return {.exposed = {hops * hop_s - hidden.forward_s + pass.machine.collective_s,
                      2 * hops * hop_s - hidden.backward_s + pass.machine.collective_s},
          .hidden = hidden};
}

// Tokens to their experts and back, over ep ranks: neighbours but for the etp that share an expert
// (Megatron-Core's order of expert ranks, tp-ep-dp). Each sends its own tokens.
double ExpertCommSeconds(const Pass& pass) {
  const Layout& layout = pass.layout;
  if (layout.ep == 1 || pass.share.experts <= 0) return 0;
  const int etp = layout.expert_tp();
  const PricedGroup group = GroupOf(pass.machine, layout.ep, etp, layout.world_size());
  const bool own_tokens = layout.sequence_parallel || etp < layout.tp;
  const double bytes = pass.machine.element_bytes * pass.tokens * pass.share.copies *
                       pass.share.width / (own_tokens ? etp : 1);
  return 2 * AllToAllSeconds(pass.machine, group, bytes);
}

// The host starts operations while the device computes; a device that is the host does both.
void AddOverhead(const Pass& pass, double ops, TermSeconds& terms) {
  const double host_s = ops * pass.machine.op_s * pass.sharing;
  terms[TimeTerm::kOverhead] += pass.machine.gpu ? std::max(0.0, host_s - terms.total_s()) : host_s;
}

}  // namespace

BlockCompute BlockComputeOf(const Question& question, const Layout& layout) {
  const Pass pass(question, layout);
  BlockCompute compute = {.machine = pass.machine, .share = pass.share, .matmul = {}};
  compute.matmul = BlockMatmuls(pass);
  // Only the adapters have weight gradients: r columns beside thousands, left out here.
  if (question.adapters) compute.matmul.weight_gradient_s = 0;
  const BothPasses attention = AttentionCore(pass);
  compute.attention_forward_s = attention.forward_s;
  compute.attention_backward_s = attention.backward_s;
  return compute;
}

PassCost BlockPass(const Question& question, const Layout& layout, Recompute recompute) {
  return BlockPass(question, layout, recompute, BlockComputeOf(question, layout));
}

PassCost BlockPass(const Question& question, const Layout& layout, Recompute recompute,
                   const BlockCompute& compute) {
  const Pass pass(question, layout, compute.machine, compute.share);
  const TimeHabits& habits = pass.habits;
  const LinearSeconds& matmul = compute.matmul;
  const double dequantize_s = DequantizeSeconds(pass);
  const BothPasses attention = {compute.attention_forward_s, compute.attention_backward_s};
  const BothPasses scores = StoredScores(pass);
  const BothPasses elements = ElementSeconds(pass);
  const BothPasses fused = FusedSeconds(pass);
  const BothPasses tensor = TensorComm(pass);
  const PartlyHidden context = ContextComm(pass, attention);
  const double expert_s = ExpertCommSeconds(pass);
  const CastSeconds cast = CastsToFp8(pass);
  const double forward_collectives = layout.tp == 1 ? 0 : layout.sequence_parallel ? 4 : 2;
  const double backward_collectives = layout.tp == 1 ? 0 : layout.sequence_parallel ? 6 : 2;

  PassCost cost;
  TermSeconds& forward = cost.forward;
  forward[TimeTerm::kMatmul] = pass.sharing * matmul.forward_s;
  forward[TimeTerm::kAttention] = pass.sharing * attention.forward_s;
  forward[TimeTerm::kStreaming] = pass.sharing * (elements.forward_s - fused.forward_s +
                                                  scores.forward_s + dequantize_s + cast.forward_s);
  forward[TimeTerm::kTensorComm] = Exposed(tensor.forward_s, habits.tensor_hidden_forward,
                                           forward.total_s() - context.hidden.forward_s);
  forward[TimeTerm::kContextComm] = context.exposed.forward_s;
  forward[TimeTerm::kExpertComm] = expert_s;
  const double forward_ops = habits.forward_ops + forward_collectives * habits.collective_ops +
                             kCastKernels * cast.forward_casts;

  TermSeconds& backward = cost.backward;
  backward[TimeTerm::kMatmul] = pass.sharing * (matmul.input_gradient_s + matmul.weight_gradient_s);
  backward[TimeTerm::kAttention] = pass.sharing * attention.backward_s;
  backward[TimeTerm::kStreaming] =
      pass.sharing *
      (elements.backward_s - fused.backward_s + scores.backward_s + dequantize_s + cast.backward_s);
  backward[TimeTerm::kTensorComm] = Exposed(tensor.backward_s, habits.tensor_hidden_backward,
                                            backward.total_s() - context.hidden.backward_s);
  backward[TimeTerm::kContextComm] = context.exposed.backward_s;
  backward[TimeTerm::kExpertComm] = expert_s;
  double backward_ops = habits.backward_ops + backward_collectives * habits.collective_ops +
                        kCastKernels * cast.backward_casts;
  if (recompute == Recompute::kFull) {
    backward[TimeTerm::kRecompute] = forward.total_s();
    backward_ops += forward_ops;
  } else if (recompute == Recompute::kSelective) {
    // Scores where they are stored; the cheap wide tensors.
    const double again_s = pass.fused ? 0 : attention.forward_s + scores.forward_s;
    const double share = habits.selective_products;
    const double products_s = share > 0 ? share * matmul.forward_s : 0;  // may be infinite
    backward[TimeTerm::kRecompute] = pass.sharing * (again_s + elements.forward_s / 2 + products_s);
  }
  AddOverhead(pass, forward_ops, forward);
  AddOverhead(pass, backward_ops, backward);
  cost.weight_gradient_s = pass.sharing * (matmul.weight_gradient_s + cast.weight_gradient_s);
  return cost;
}

TermSeconds CodesOfWeights(const Question& question, const Layout& layout, Recompute recompute) {
  TermSeconds terms;
  if (question.numerics.precision != Precision::kFp8) return terms;
  const Pass pass(question, layout);
  const auto whole = [](double size) { return static_cast<int64_t>(size); };
  const Fp8Weights weights = Fp8WeightsOf({.layers = pass.fp8,
                                           .hidden = whole(pass.share.width),
                                           .query = whole(pass.share.query),
                                           .key = whole(pass.share.key_value),
                                           .ffn = whole(pass.share.inner),
                                           .has_gate = pass.gated,
                                           .is_qkv_one = true,
                                           .is_gate_up_one = true});
  if (weights.count == 0) return terms;
  const auto elements = static_cast<double>(weights.elements);
  double casts = 1;
  double seconds = CastOf(pass, elements, 2);
  if (!KeepsFp8Weights(layout)) {
    const double passes = recompute == Recompute::kFull ? 3 : 2;
    casts = passes * static_cast<double>(layout.gradient_accumulation_steps);
    seconds = casts * CastOf(pass, elements, 1);
  }
  terms[TimeTerm::kStreaming] = pass.sharing * seconds;
  AddOverhead(pass, kCastKernels * casts * static_cast<double>(weights.count), terms);
  return terms;
}

PassCost EmbeddingPass(const Question& question, const Layout& layout) {
  const Pass pass(question, layout);
  // Gather, add positions, write; vocabulary-parallel, so the rows are summed over tp.
  const double streaming_s = pass.sharing * StreamingSeconds(pass.machine, 3 * pass.wide_bytes());
  PassCost cost;
  cost.forward[TimeTerm::kStreaming] = streaming_s;
  cost.backward[TimeTerm::kStreaming] = streaming_s;
  if (layout.tp > 1) {
    cost.forward[TimeTerm::kTensorComm] =
        layout.sequence_parallel
            ? ReduceScatterSeconds(pass.machine, pass.tensor_group, pass.wide_bytes())
            : AllReduceSeconds(pass.machine, pass.tensor_group, pass.wide_bytes());
    if (layout.sequence_parallel) {
      cost.backward[TimeTerm::kTensorComm] =
          AllGatherSeconds(pass.machine, pass.tensor_group, pass.wide_bytes());
    }
  }
  AddOverhead(pass, 1 + pass.habits.microbatch_ops / 2, cost.forward);
  AddOverhead(pass, 1 + pass.habits.microbatch_ops / 2, cost.backward);
  return cost;
}

PassCost HeadPass(const Question& question, const Layout& layout) {
  const Pass pass(question, layout);
  const double vocab =
      static_cast<double>(SplitRange(question.model.vocab_size, 1, layout.tp, 0).size());
  const double pieces = layout.head_chunks(question.batch.seq_len);
  const double rows = pass.tokens / pieces;
  LinearSeconds matmul = LinearLayer(pass.of_product(false), rows, vocab, pass.share.width);
  if (question.adapters) matmul.weight_gradient_s = 0;
  // Norm and its gradient; logits read for maximum and sum, read and written for the gradient.
  const double logits_s = StreamingSeconds(
      pass.machine, pass.machine.element_bytes * pass.habits.logit_passes * pass.tokens * vocab);
  const double norm_s =
      StreamingSeconds(pass.machine, pass.machine.element_bytes * 6 * pass.rows * pass.share.width);
  PassCost cost;
  cost.forward[TimeTerm::kMatmul] = pass.sharing * pieces * matmul.forward_s;
  cost.forward[TimeTerm::kStreaming] = pass.sharing * (norm_s / 2 + logits_s / 2);
  cost.backward[TimeTerm::kMatmul] =
      pass.sharing * pieces * (matmul.input_gradient_s + matmul.weight_gradient_s);
  cost.backward[TimeTerm::kStreaming] = pass.sharing * (norm_s / 2 + logits_s / 2);
  if (layout.tp > 1) {
    // Maximum, sum and target logit are reduced over tp, then the gradient of the head's input.
    const double thin_bytes = pass.machine.element_bytes * pass.tokens;
    cost.forward[TimeTerm::kTensorComm] =
        3 * AllReduceSeconds(pass.machine, pass.tensor_group, thin_bytes);
    cost.backward[TimeTerm::kTensorComm] =
        layout.sequence_parallel
            ? ReduceScatterSeconds(pass.machine, pass.tensor_group, pass.wide_bytes())
            : AllReduceSeconds(pass.machine, pass.tensor_group, pass.wide_bytes());
    if (layout.sequence_parallel) {
      cost.forward[TimeTerm::kTensorComm] +=
          AllGatherSeconds(pass.machine, pass.tensor_group, pass.wide_bytes());
    }
  }
  AddOverhead(pass, 5 + pass.habits.microbatch_ops / 2, cost.forward);
  AddOverhead(pass, 4 + pass.habits.microbatch_ops / 2, cost.backward);
  // More pieces add to the input gradients alone: nothing that ZB-H1 may move hides it.
  const double whole_s =
      pieces == 1 ? matmul.weight_gradient_s
                  : MatmulSeconds(pass.of_product(false), vocab, pass.share.width, pass.tokens);
  cost.weight_gradient_s = question.adapters ? 0 : pass.sharing * whole_s;
  return cost;
}

double BoundarySeconds(const Question& question, const Layout& layout) {
  if (layout.pp == 1) return 0;
  const Machine machine = MachineOf(question);
  const double tokens = static_cast<double>(layout.micro_batch_size) *
                        static_cast<double>(question.batch.seq_len) / layout.cp;
  const double bytes =
      machine.element_bytes * tokens * static_cast<double>(question.model.hidden_size);
  const TimeHabits& habits = question.engine.time;
  const bool scatters = habits.scatters_transfers && layout.tp > 1 && !layout.sequence_parallel;
  const double sent = scatters || layout.sequence_parallel ? bytes / layout.tp : bytes;
  const int world = layout.world_size();
  double transfer_s = SendSeconds(machine, world, world, sent) + habits.transfer_ops * machine.op_s;
  if (scatters) {
    transfer_s += AllGatherSeconds(machine, GroupOf(machine, layout.tp, 1, world), bytes);
  }
  return transfer_s;
}

double WaitedBoundarySeconds(const Question& question, const Layout& layout, double chunk_s) {
  const double transfer_s = BoundarySeconds(question, layout);
  if (!ChunksHideTransfers(question, layout)) return transfer_s;
  return std::max(0.0, transfer_s - chunk_s);
}

bool ChunksHideTransfers(const Question& question, const Layout& layout) {
  return layout.virtual_stages > 1 && question.engine.time.chunks_hide_transfers;
}

}  // namespace weft
