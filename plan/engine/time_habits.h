// How an engine spends time beyond the work itself: kernels, launches, fusion, overlap. A handful
// of constants, each with its meaning and unit; their values are constants.cc's. Pure values.
#pragma once

namespace weft {

// Matrix products on devices with compute units, as one vendor's libraries do them for all engines.
struct MatmulHabits {
  double half_rate_inner = 150;  // inner size at which a unit runs at half its rate
  double wave_loss = 0.5;        // share of the last wave's idle units that the kernels do not fill
  double small_tile_loss = 0.1;  // of a unit's rate, each time that its tile is halved
  // Rate of products with a dim that vector loads cannot take (not a multiple of 8) over the usual.
  double odd_size_rate = 0.25;
};

struct TimeHabits {
  // Attention on GPUs that stores no [T, T] matrix (arXiv:2307.08691); false: scores of all pairs
  // are written and read back. CPU backends store the causal half.
  bool fused_attention = true;

  // On GPUs, products of 16-bit elements do bias, residual and GELU in their own kernel; false: a
  // kernel each. What other engines fuse is in their streaming_forward and streaming_backward.
  bool fused_epilogues = false;

  // Rate of a deterministic gradient of attention on GPUs, fused and in 16 bits, over the usual
  // one: mma.sync kernels beside cuDNN's (Shah et al., arXiv:2407.08608: 214-322 of 305-518
  // TFLOP/s). Not fitted.
  double ordered_attention_rate = 0.65;

  // Rate of fused attention by kernels that were written for Ampere (mma.sync), on devices that
  // multiply 8-bit floats, over the rate of kernels that were written for those. Shah et al.,
  // arXiv:2407.08608, measure about half for the forward pass alone.
  double old_attention_rate = 1;

  MatmulHabits matmul;

  // On GPUs: a collective that is waited for takes so long beside what it moves, since its stream
  // and the compute's wait for each other.
  double collective_start_s = 0;

  // Shares of tensor-parallel communication that the compute of its own pass hides, [0, 1].
  double tensor_hidden_forward = 0;
  double tensor_hidden_backward = 0;

  // Each rank of tp sends its own part of an activation that all of them hold whole, and the
  // receivers gather it inside their node (arXiv:2104.04473, 4.1).
  bool scatters_transfers = false;
  // Interleaved chunks: a transfer moves beside the pass of another chunk, and what outlasts that
  // is waited for. Of one chunk a stage waits for its transfers.
  bool chunks_hide_transfers = false;

  // Context parallelism gathers keys and values of whole sequences before attention, and again in
  // the backward pass, whose sums it scatters (arXiv:2407.21783, 3.3.2); false: they pass around a
  // ring under the attention of what has arrived (arXiv:2310.01889).
  bool gathers_keys = false;
  // Share of the last microbatch's backward pass behind which gradients are reduced, [0, 1]; and
  // of the next step's first forward pass behind which parameters are gathered.
  double reduce_window = 0;
  double gather_window = 0;
  // Compute that runs beside a communication loses this share of the time that both run: some
  // units move data (arXiv:2407.21783, 3.3.2 and others see 2 to 15 %).
  double overlap_slowdown = 0;
  // ZeRO reduces gradients to their owners by all-reduces, of which each rank keeps its part.
  bool zero_all_reduces = false;
  // Gradients and weights cross the data axis by the buckets of plan/shards/buckets.h, each block's
  // beside the blocks after it; false: in collectives of bucket_bytes beside the whole pass.
  bool by_buckets = false;
  // Each block is gathered and reduced by a collective of its own (a unit of FSDP); false: by
  // collectives of bucket_bytes.
  bool by_blocks = false;
  double bucket_bytes = 1e15;  // of gradients or parameters, per collective
  // Where products are in 16 or 8 bits; in fp32 both have 4.
  double gradient_bytes = 4;   // per parameter, as reduced
  double parameter_bytes = 2;  // as gathered

  // Host operations started, each device.op_overhead_s: per block and pass, per collective inside
  // a block, per microbatch outside blocks, per step.
  double forward_ops = 18;
  double backward_ops = 24;
  double collective_ops = 0;
  double transfer_ops = 0;  // per transfer between stages
  double microbatch_ops = 0;
  double step_ops = 0;

  // Recompute `selective` repeats this share of a block's linear layers beside the attention core
  // and the cheap wide tensors.
  double selective_products = 0;

  // Traffic of memory-bound kernels over the least there is (each tensor read once by each kernel
  // that needs it and written once): the lack of fusion.
  double streaming_forward = 1;
  double streaming_backward = 2;
  // The same of norms, residual sums and other tensors as wide as the model, which tp does not cut
  // but by sequence.
  double row_streaming_forward = 1;
  double row_streaming_backward = 2;
  double score_passes_forward = 4;  // times that a stored score is written or read
  double score_passes_backward = 8;
  // Under precision fp8 the 8-bit codes of operands are made before their products, and the head is
  // in bf16 (plan/spec/fp8.h); false: what is beside the products is in the constants.
  bool casts_operands_to_fp8 = false;
  double logit_passes = 4;      // the same for logits and their gradient, both passes
  double optimizer_bytes = 36;  // moved per parameter and step with two moments
  // Spread of ranks' step times over their mean, as a share of the step: n ranks that wait for
  // each other lose sigma * sqrt(2 ln n).
  double straggler_sigma = 0;
};

}  // namespace weft
