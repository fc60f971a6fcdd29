// A job in which every key differs from its default, for tests of what carries jobs.
#pragma once
#include "plan/spec/job_spec.h"

namespace weft {

inline Cluster FullCluster() {
  DeviceProfile device;
  device.name = "h200";
  device.backend = BackendKind::kCuda;
  device.memory_bytes = 1000;
  device.library_bytes = 10;
  device.compute_units = 132;
  device.peak_flops_per_s = {1e12, 2e12, 4e12};
  device.peak_memory_bytes_per_s = 2e11;
  device.matmul_efficiency = {0.8, 0.7, 0.6};
  device.attention_efficiency = 0.5;
  device.streaming_efficiency = 0.9;
  device.op_overhead_s = 3e-6;
  device.matmuls = {{64, 128, 256, Precision::kBf16, 1.5e12}};
  Cluster cluster;
  cluster.name = "lab";
  cluster.nodes = 2;
  cluster.slots_per_node = 8;
  cluster.cores_per_node = 16;
  cluster.nics_per_node = 4;
  cluster.host_memory_bytes = 2000;
  cluster.host_library_bytes = 300;
  cluster.device = device;
  cluster.intra_node = {1e-6, 2e10, true};
  cluster.inter_node = {3e-6, 4e9, true};
  cluster.storage = {1e9, 1e10};
  cluster.failures = {5e4, 300};
  cluster.price_per_device_hour = 2.5;
  cluster.collectives = {{Collective::kAllGather, 8, 1 << 20, 1e-4}};
  return cluster;
}

// Every property is asked for.
inline LayoutSpec FullLayoutSpec() {
  return {.dp = 2,
          .tp = 3,
          .pp = 4,
          .cp = 5,
          .ep = 6,
          .etp = 2,
          .zero_stage = 1,
          .zero_hpz_partition_size = 2,
          .pp_schedule = ScheduleKind::kGpipe,
          .virtual_stages = 7,
          .micro_batch_size = 8,
          .gradient_accumulation_steps = 9,
          .recompute = Recompute::kFull,
          .sequence_parallel = true,
          .offload_optimizer = OffloadDevice::kCpu,
          .head_chunk_tokens = 10,
          .layers_per_stage = {{1, 2}},
          .recompute_per_stage = {Recompute::kNone, Recompute::kSelective}};
}

// {tolerations: [{key: gpu}], fsGroup: 1000, hostNetwork: true, version: "1", affinity: null}
inline PassedOn FullPod() {
  using Kind = PassedOn::Kind;
  const PassedOn key = {Kind::kMap, "", {"key"}, {{Kind::kText, "gpu", {}, {}}}};
  return {Kind::kMap,
          "",
          {"tolerations", "fsGroup", "hostNetwork", "version", "affinity"},
          {{Kind::kList, "", {}, {key}},
           {Kind::kWord, "1000", {}, {}},
           {Kind::kWord, "true", {}, {}},
           {Kind::kText, "1", {}, {}},
           {}}};
}

inline SchedulerSpec FullScheduler() {
  return {Scheduler::kSlurm,
          "gpu",
          "lab",
          "high",
          "a100&ib",
          "n[1-3]",
          "class",
          "1-2:30",
          "afterok:12",
          "--nice=10 -v",
          "module load gcc\nulimit -l \"unlimited\"",
          "apptainer exec a.sif",
          {"registry.example.org/weft:1",
           "training",
           "shared",
           "/data",
           "lab",
           "low",
           "nvidia",
           "amd.com/gpu",
           {{"rdma/ib", "1"}},
           {{"pool", "batch"}},
           true,
           FullPod()}};
}

inline DataSpec FullData() {
  return {{{"/a.txt"}, {"/b.txt"}},
          {{"/v.txt"}},
          0.1,
          TokenFormat::kNanogpt,
          TokenDtype::kUint32,
          5,
          6,
          true,
          true};
}

inline OptimizerSpec FullOptimizer() {
  return {OptimizerKind::kSgd,
          1e-3,
          0.8,
          0.99,
          1e-9,
          0.2,
          {{{"*.bias", "head.weight"}, 0.3}},
          0.9,
          0.4,
          true,
          -0.7,
          0.6,
          true};
}

inline JobSpec FullJob() {
  JobSpec job;
  job.name = "quickstart";
  job.output_dir = "/runs";
  job.init_from = "/weights \"quoted\"";
  job.model = {.architecture = Architecture::kMixtral,
               .vocab_size = 257,
               .hidden_size = 64,
               .num_blocks = 3,
               .num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 16,
               .ffn_size = 256,
               .max_positions = 128,
               .norm_eps = 1.25e-6,
               .initializer_range = 0.01,
               .rope_theta = 5e5,
               .tied_embeddings = true,
               .num_experts = 8,
               .experts_per_token = 2,
               .expert_ffn_size = 256,
               .rope_scaling = {8, 2, 5, 4096},
               .attention_bias = true};
  job.data = FullData();
  job.training = {32,
                  8,
                  20,
                  0.1234567890123456789,
                  1e-4,
                  0.1,
                  9007199254740993,
                  Precision::kBf16,
                  ReduceDtype::kBf16,
                  true,
                  3};
  job.fp16 = {512, 12, 200, 3, 4};
  job.optimizer = FullOptimizer();
  job.lr_scheduler = {LrSchedule::kLinear, 5, 10, 1e-5, 1e-6};
  job.layout = FullLayoutSpec();
  job.lora = {4, 16, {"c_attn"}, FrozenFormat::kNf4Double};
  job.checkpoint = {"saved", 10, 4, ResumeMode::kNone};
  job.fault_tolerance = {5, 2.5, 30, false};
  job.comm = {11, 12, 13};
  job.validation = {6, 2};
  job.log_freq = 3;
  job.max_metrics_bytes = 65536;
  job.max_log_bytes = 1048576;
  job.profiler = {true, 7};
  job.deterministic = true;
  job.cluster = FullCluster();
  job.hosts = {1, "10.78.0.0/24", "-p 2222 -o \"x\"", "/opt/weft/bin", 3};
  job.hosts.failure_domains = {{"rack1", "n[1-8],login1"}, {"zone b", "gpu*"}};
  job.scheduler = FullScheduler();
  job.threads_per_worker = 2;
  job.bind = false;
  job.env = {{"A", "1"}, {"B", "x: \"y\" # z"}};
  return job;
}

}  // namespace weft
