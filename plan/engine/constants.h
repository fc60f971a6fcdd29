// Every constant of the time model that was fitted to measurements, in one place: per hardware
// generation and per engine, never per model, source or row. How they were found and how well they
// hold on what they have not seen: docs/estimates.md and bench/README.md.
#pragma once
#include "plan/engine/time_habits.h"

namespace weft {

// Training reaches these figures, most of them shares of a data sheet's, on a generation of
// devices. A cluster file of configs/clusters repeats them for its device; bench/hardware.cc
// applies them to devices that are known by name only.
struct GenerationConstants {
  double matmul_fp32 = 0.7;  // of the peak, large products
  double matmul_bf16 = 0.7;
  double matmul_fp8 = 0.6;
  double attention = 0.5;       // fused, of the bf16 peak, forward pass
  double streaming = 0.85;      // of the memory's peak
  double op_overhead_s = 4e-6;  // of the host, to start a kernel; not fitted
  double intra_node = 0.8;      // of one way of the link inside a node
  double inter_node = 0.7;      // of the NICs' rate, in large collectives; a prior, not fitted
  double intra_latency_s = 5e-6;
  double inter_latency_s = 1e-5;
};

struct TimeConstants {
  GenerationConstants ampere, hopper, blackwell, ada;
  // A NIC of Ethernet (RoCE, EFA) has this latency, in place of a generation's inter_latency_s,
  // which is that of InfiniBand.
  double ethernet_latency_s = 3e-4;
  MatmulHabits matmul;  // of every engine on GPUs
  TimeHabits weft;
  TimeHabits megatron;            // Megatron-Core: distributed optimizer, overlapped communication
  TimeHabits megatron_deepspeed;  // of 2021-22: eager attention, DeepSpeed's pipeline engine
  TimeHabits pytorch_fsdp;        // prefetched gathers
  TimeHabits pytorch_eager;       // modules under data parallelism or ZeRO-1
};

// Megatron-LM of 2021-22, which has no constants of its own: the fused kernels that Megatron-Core
// kept, the attention of Megatron-DeepSpeed, and nothing overlapped.
TimeHabits MegatronLmHabits(const TimeConstants& constants);

TimeConstants FittedTimeConstants();

}  // namespace weft
