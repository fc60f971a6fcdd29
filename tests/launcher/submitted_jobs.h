// The parts of job files that tests submit to Slurm and to Kubernetes: a model, its data and its
// training; the scheduler's keys are each test's own.
#pragma once

namespace weft {

inline constexpr char kTiny[] =
    "model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 4, "
    "n_head: 4}\n"
    "data: {format: bytes, train: [{path: /data/a}]}\n"
    "training: {seq_len: 64, global_batch_size: 12, steps: 60}\n";
inline constexpr char kLarge[] =
    "model: {path: ../models/llama3-8b}\n"
    "data: {format: llmc, train: [{path: /data/a.bin}]}\n"
    "training: {seq_len: 2048, global_batch_size: 64, steps: 20000, mixed_precision: bf16}\n";

}  // namespace weft
