// The job that tests of processes train: what matters there is when a step is and that its bits are
// the same, so it has as little to compute as a model of two stages and four heads can have. Its
// ranks sleep in each step: a test that waits for a lease, a disk or Slurm leaves the processors
// to others, and a count of steps is a time at least.
#pragma once
#include "process/failpoint.h"

namespace weft {

// Blocks of a job file. With a batch of 24 sequences three replicas are planned where there is room
// for them; with one of 12 they are too little to share.
inline constexpr char kTinyModel[] =
    "model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 32, n_layer: 4, n_head: "
    "4}\n"
    "data: {format: bytes, train: [{path: /usr/share/common-licenses/GPL-3}]}\n";
inline constexpr int kTinySeqLen = 32;

// The value of kPauseVariable: a rank sleeps for 20 ms in each step.
inline constexpr char kPace[] = "step.begin:20";
// No pace, for a curve that others are only compared with.
inline constexpr char kNoPace[] = "";

}  // namespace weft
