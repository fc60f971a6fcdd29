#include "launcher/slurm/gpu_type.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/places.h"

namespace weft {
namespace {

// Types are as Slurm's AutoDetect=nvml makes them of NVML's names, or as sites write them; devices
// as profiles of configs/clusters name them, or as `weft calibrate` finds them.
TEST(GpuType, IsHeldAgainstTheProfilesDevice) {
  struct Case {
    const char* type;
    const char* device;
    GpuMatch match;
  };
  for (const Case& each : {
           Case{"h100", "H100-SXM-80GB", GpuMatch::kSame},
           Case{"H100", "NVIDIA H100 80GB HBM3", GpuMatch::kSame},
           Case{"nvidia_h100_80gb_hbm3", "H100-SXM-80GB", GpuMatch::kSame},
           Case{"nvidia_h100_pcie", "H100-SXM-80GB", GpuMatch::kSame},
           Case{"nvidia_a100-sxm4-80gb", "A100-SXM4-40GB", GpuMatch::kSame},
           Case{"a100_1g.10gb", "A100-SXM4-40GB", GpuMatch::kSame},
           Case{"nvidia_gb200", "GB200-186GB", GpuMatch::kSame},
           Case{"nvidia_geforce_rtx_4090", "RTX4090-24GB", GpuMatch::kSame},
           Case{"rtx4090", "NVIDIA GeForce RTX 4090", GpuMatch::kSame},
           Case{"4090", "RTX4090-24GB", GpuMatch::kSame},
           Case{"mi300x", "MI300X-192GB", GpuMatch::kSame},
           Case{"nvidia_l40s", "NVIDIA L40S", GpuMatch::kSame},
           Case{"a100", "H100-SXM-80GB", GpuMatch::kOther},
           Case{"tesla_v100-sxm2-16gb", "A100-SXM4-40GB", GpuMatch::kOther},
           Case{"h200", "H100-SXM-80GB", GpuMatch::kOther},
           Case{"gh200", "H200-141GB", GpuMatch::kOther},
           Case{"b200", "GB200-186GB", GpuMatch::kOther},
           Case{"a6000", "RTX6000", GpuMatch::kOther},
           Case{"4090", "H100-SXM-80GB", GpuMatch::kOther},
           Case{"tesla", "H100-SXM-80GB", GpuMatch::kUnknown},
           Case{"80gb", "H100-SXM-80GB", GpuMatch::kUnknown},
           Case{"1g.10gb", "H100-SXM-80GB", GpuMatch::kUnknown},
           Case{"nvidia_l4", "H100-SXM-80GB", GpuMatch::kOther},
           Case{"h100", "NVIDIA L4", GpuMatch::kOther},
           Case{"l4", "L40S-48GB", GpuMatch::kOther},
           Case{"t4", "T4-16GB", GpuMatch::kSame},
           Case{"v2", "T4-16GB", GpuMatch::kUnknown},
           Case{"a100l", "A100-SXM4-80GB", GpuMatch::kUnknown},
           Case{"l40", "NVIDIA L40S", GpuMatch::kUnknown},
           Case{"quadro_6000", "NVIDIA RTX 6000 Ada Generation", GpuMatch::kUnknown},
           Case{"", "H100-SXM-80GB", GpuMatch::kUnknown},
           Case{"-_ ", "", GpuMatch::kUnknown},
       }) {
    EXPECT_EQ(MatchGpu(each.type, each.device), each.match) << each.type << ", " << each.device;
  }
}

// A profile that the rule says nothing of would be taken for every partition.
TEST(GpuType, KnowsTheDeviceOfEveryProfileOfGpus) {
  int profiles = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("/configs/clusters"))) {
    std::ifstream file(entry.path());
    bool is_device = false;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("device:", 0) == 0) is_device = true;
      if (!is_device || line.rfind("  name: ", 0) != 0) continue;
      const std::string device = line.substr(8);
      if (device == "cpu-slot") break;
      ++profiles;
      EXPECT_EQ(MatchGpu(device, device), GpuMatch::kSame) << entry.path();
      EXPECT_EQ(MatchGpu("zz77", device), GpuMatch::kOther) << entry.path();
      break;
    }
  }
  EXPECT_GE(profiles, 19);
}

}  // namespace
}  // namespace weft
