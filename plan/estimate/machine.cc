#include "plan/estimate/machine.h"

namespace weft {

Machine MachineOf(const Question& question) {
  return MachineOf(question, question.numerics.precision);
}

Machine MachineOf(const Question& question, Precision precision) {
  const Cluster& cluster = question.cluster;
  const DeviceProfile& device = cluster.device;
  const TimeHabits& habits = question.engine.time;
  Machine machine;
  machine.gpu = device.backend == BackendKind::kCuda;
  machine.matmul_flops_per_s = device.MatmulFlopsPerS(precision);
  machine.attention_flops_per_s = device.AttentionFlopsPerS(precision);
  machine.memory_bytes_per_s = device.StreamBytesPerS();
  machine.op_s = device.op_overhead_s;
  machine.element_bytes = ActivationBytes(precision);
  if (machine.gpu) {
    machine.units = device.compute_units;
    machine.half_rate_inner = habits.matmul.half_rate_inner;
    machine.wave_loss = habits.matmul.wave_loss;
    machine.small_tile_loss = habits.matmul.small_tile_loss;
    machine.collective_s = habits.collective_start_s;
  }
  machine.adds_in_rank_order = machine.gpu && question.deterministic;
  machine.precision = precision == Precision::kFp16 ? Precision::kBf16 : precision;
  if (!device.matmuls.empty()) machine.matmuls = &device.matmuls;
  if (!cluster.collectives.empty()) machine.collectives = &cluster.collectives;
  machine.intra_node = cluster.intra_node;
  machine.inter_node = cluster.inter_node;
  machine.inter_node.bytes_per_s *= static_cast<double>(cluster.nics()) / cluster.slots_per_node;
  machine.slots_per_node = cluster.slots_per_node;
  return machine;
}

}  // namespace weft
