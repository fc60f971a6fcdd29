#include "bench/hardware.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Dense peaks and rates of a part, per device, one way; bytes, FLOP and seconds.
struct DataSheet {
  absl::string_view name;  // a row's name has to contain it; the first that fits is taken
  GenerationConstants TimeConstants::*generation;
  double fp32, bf16, fp8;  // FLOP/s; 0: not offered
  double memory_gib;
  double memory_bytes_per_s;
  int compute_units;
  double intra_node;  // bytes/s to the other devices of the node
  double inter_node;  // bytes/s, the usual network of its servers
};
constexpr DataSheet kDataSheets[] = {
    {"A100-40G", &TimeConstants::ampere, 19.5e12, 312e12, 0, 40, 1.555e12, 108, 300e9, 25e9},
    {"A100", &TimeConstants::ampere, 19.5e12, 312e12, 0, 80, 2.039e12, 108, 300e9, 25e9},
    {"A800", &TimeConstants::ampere, 19.5e12, 312e12, 0, 80, 2.039e12, 108, 200e9, 25e9},
    {"H100-96G", &TimeConstants::hopper, 67e12, 989e12, 1979e12, 96, 2.4e12, 132, 450e9, 50e9},
    {"H100", &TimeConstants::hopper, 67e12, 989e12, 1979e12, 80, 3.35e12, 132, 450e9, 50e9},
    {"H800", &TimeConstants::hopper, 67e12, 989e12, 1979e12, 80, 3.35e12, 132, 200e9, 50e9},
    {"H20-", &TimeConstants::hopper, 44e12, 148e12, 296e12, 96, 4.0e12, 78, 450e9, 50e9},
    {"GH200", &TimeConstants::hopper, 67e12, 989e12, 1979e12, 96, 4.0e12, 132, 450e9, 50e9},
    {"H200", &TimeConstants::hopper, 67e12, 989e12, 1979e12, 141, 4.8e12, 132, 450e9, 50e9},
    {"GB200", &TimeConstants::blackwell, 80e12, 2500e12, 5000e12, 186, 8e12, 148, 900e9, 50e9},
    {"B200", &TimeConstants::blackwell, 75e12, 2250e12, 4500e12, 180, 8e12, 148, 900e9, 50e9},
    {"B300", &TimeConstants::blackwell, 75e12, 2250e12, 4500e12, 268, 8e12, 148, 900e9, 100e9},
    {"Blackwell", &TimeConstants::blackwell, 75e12, 2250e12, 4500e12, 184, 8e12, 148, 900e9, 50e9},
    {"4090", &TimeConstants::ada, 82.6e12, 165e12, 330e12, 24, 1.008e12, 128, 32e9, 12.5e9},
    {"L40S", &TimeConstants::ada, 91.6e12, 362e12, 733e12, 48, 0.864e12, 142, 32e9, 25e9},
    {"L40", &TimeConstants::ada, 90.5e12, 181e12, 362e12, 48, 0.864e12, 142, 32e9, 25e9},
    {"3090", &TimeConstants::ampere, 35.6e12, 71e12, 0, 24, 0.936e12, 82, 32e9, 12.5e9},
    {"A6000", &TimeConstants::ampere, 38.7e12, 155e12, 0, 48, 0.768e12, 84, 32e9, 12.5e9},
    {"A40", &TimeConstants::ampere, 37.4e12, 150e12, 0, 48, 0.696e12, 84, 32e9, 25e9},
    {"A30", &TimeConstants::ampere, 10.3e12, 165e12, 0, 24, 0.933e12, 56, 100e9, 12.5e9},
    {"A10", &TimeConstants::ampere, 31.2e12, 125e12, 0, 24, 0.600e12, 72, 32e9, 12.5e9},
    {"V100", &TimeConstants::ampere, 15.7e12, 125e12, 0, 32, 0.900e12, 80, 150e9, 12.5e9},
};

// Switches of NVLink that add up all-reduces came with Hopper.
bool SwitchReduces(const DataSheet& sheet) {
  return sheet.intra_node >= 400e9;
}

DeviceProfile DeviceOf(const DataSheet& sheet, const GenerationConstants& reached) {
  DeviceProfile device;
  device.name = std::string(sheet.name);
  device.backend = BackendKind::kCuda;
  device.memory_bytes = static_cast<int64_t>(sheet.memory_gib * 1024 * 1024 * 1024);
  device.compute_units = sheet.compute_units;
  device.peak_flops_per_s = {sheet.fp32, sheet.bf16, sheet.fp8};
  device.peak_memory_bytes_per_s = sheet.memory_bytes_per_s;
  device.matmul_efficiency = {reached.matmul_fp32, reached.matmul_bf16, reached.matmul_fp8};
  device.attention_efficiency = reached.attention;
  device.streaming_efficiency = reached.streaming;
  device.op_overhead_s = reached.op_overhead_s;
  return device;
}

}  // namespace

absl::StatusOr<Cluster> ClusterOf(const TimeConstants& constants, absl::string_view hardware,
                                  int gpus, int gpus_per_node,
                                  std::optional<double> inter_node_bytes_per_s) {
  for (const DataSheet& sheet : kDataSheets) {
    if (!absl::StrContains(absl::AsciiStrToLower(hardware), absl::AsciiStrToLower(sheet.name)))
      continue;
    const GenerationConstants& reached = constants.*sheet.generation;
    Cluster cluster;
    cluster.name = std::string(hardware);
    cluster.slots_per_node = std::min(gpus, gpus_per_node);
    cluster.nodes = (gpus + gpus_per_node - 1) / gpus_per_node;
    cluster.device = DeviceOf(sheet, reached);
    cluster.intra_node = {.latency_s = reached.intra_latency_s,
                          .bytes_per_s = reached.intra_node * sheet.intra_node,
                          .switch_reduces = SwitchReduces(sheet)};
    cluster.inter_node = {
        .latency_s = reached.inter_latency_s,
        .bytes_per_s = reached.inter_node * inter_node_bytes_per_s.value_or(sheet.inter_node)};
    return cluster;
  }
  std::string known;
  for (const DataSheet& sheet : kDataSheets) absl::StrAppend(&known, " ", sheet.name);
  return absl::NotFoundError(
      absl::StrCat("hardware \"", hardware, "\" has no data sheet here; known are", known));
}

}  // namespace weft
