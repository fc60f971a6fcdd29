// Jobs and machines that the planner's tests share: small enough to be checked by hand.
#pragma once
#include "plan/spec/job_spec.h"

namespace weft {

// Four slots on four cores; numbers are round, not measured.
inline Cluster SampleCluster() {
  Cluster cluster;
  cluster.name = "sample-cpu";
  cluster.nodes = 1;
  cluster.slots_per_node = 4;
  cluster.cores_per_node = 4;
  cluster.device.name = "cpu-slot";
  cluster.device.memory_bytes = int64_t{2} << 30;
  cluster.device.library_bytes = int64_t{256} << 20;
  cluster.device.peak_flops_per_s.fp32 = 50e9;
  cluster.device.peak_memory_bytes_per_s = 10e9;
  cluster.device.op_overhead_s = 2e-6;
  cluster.intra_node = {.latency_s = 5e-6, .bytes_per_s = 4e9};
  cluster.inter_node = {.latency_s = 30e-6, .bytes_per_s = 1e9};
  return cluster;
}

// A byte-level GPT of 6 blocks.
inline JobSpec SampleJob() {
  JobSpec job;
  job.name = "sample";
  job.output_dir = "/tmp/weft";
  SetArchitecture(Architecture::kGpt2, job.model);
  job.model.vocab_size = 256;
  job.model.hidden_size = 256;
  job.model.num_blocks = 6;
  job.model.num_heads = 4;
  job.model.num_kv_heads = 4;
  job.model.head_dim = 64;
  job.model.ffn_size = 1024;
  job.model.max_positions = 256;
  job.data.train = {{.path = "/tmp/weft/corpus.txt"}};
  job.training.seq_len = 256;
  job.training.global_batch_size = 16;
  job.training.steps = 100;
  job.cluster = SampleCluster();
  return job;
}

// Llama-3 70B on 8 nodes of 8 GPUs: a search of the size that people run.
inline JobSpec LargeJob() {
  JobSpec job = SampleJob();
  job.name = "large";
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.vocab_size = 128256;
  job.model.hidden_size = 8192;
  job.model.num_blocks = 80;
  job.model.num_heads = 64;
  job.model.num_kv_heads = 8;
  job.model.head_dim = 128;
  job.model.ffn_size = 28672;
  job.model.max_positions = 8192;
  job.model.tied_embeddings = false;
  job.training.seq_len = 4096;
  job.training.global_batch_size = 512;
  job.cluster.name = "sample-gpu";
  job.cluster.nodes = 8;
  job.cluster.slots_per_node = 8;
  job.cluster.cores_per_node = 0;
  job.cluster.device = {.name = "gpu",
                        .backend = BackendKind::kCuda,
                        .memory_bytes = int64_t{141} << 30,
                        .library_bytes = int64_t{2} << 30,
                        .peak_flops_per_s = {.fp32 = 40e12},
                        .peak_memory_bytes_per_s = 4e12,
                        .op_overhead_s = 5e-6};
  job.cluster.intra_node = {.latency_s = 5e-6, .bytes_per_s = 400e9};
  job.cluster.inter_node = {.latency_s = 10e-6, .bytes_per_s = 50e9};
  return job;
}

}  // namespace weft
