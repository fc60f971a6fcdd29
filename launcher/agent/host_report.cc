#include "launcher/agent/host_report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/machine.h"

namespace weft {
namespace {

constexpr int kMostCpus = 65536;
constexpr char kNvidia[] = "0x10de";
constexpr char kDisplay[] = "0x03";  // a PCI class begins so, of VGA and of 3D controllers

std::string LineIn(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    entries.push_back(entry.path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

std::vector<int> CpusIn(const std::string& list) {
  std::vector<int> cpus;
  for (const absl::string_view part : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last >= kMostCpus) {
      continue;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

void DescribeTopologyBelow(const std::string& root, proto::Host* host) {
  for (const auto& folder : EntriesOf(root + "/sys/devices/system/node")) {
    const std::string name = folder.filename();
    absl::string_view digits = name;
    int number = 0;
    if (!absl::ConsumePrefix(&digits, "node") || !absl::SimpleAtoi(digits, &number)) continue;
    proto::NumaNode& node = *host->add_numa_nodes();
    node.set_number(number);
    for (const int cpu : CpusIn(LineIn(folder / "cpulist"))) node.add_cpus(cpu);
  }
  for (const auto& folder : EntriesOf(root + "/sys/bus/pci/devices")) {
    const bool is_gpu = LineIn(folder / "vendor") == kNvidia &&
                        absl::StartsWith(LineIn(folder / "class"), kDisplay);
    if (!is_gpu) continue;
    proto::Gpu& gpu = *host->add_gpus();
    gpu.set_pci_address(folder.filename().string());
    gpu.set_device(LineIn(folder / "device"));
    int node = -1;
    if (!absl::SimpleAtoi(LineIn(folder / "numa_node"), &node)) node = -1;
    gpu.set_numa_node(node);
  }
}

proto::Host DescribeHost() {
  proto::Host host;
  host.set_cores(UsableCores());
  host.set_memory_bytes(TotalMemoryBytes().value_or(0));
  host.set_available_bytes(AvailableMemoryBytes().value_or(0));
  DescribeTopologyBelow("", &host);
  for (const std::string& address : OwnAddresses()) host.add_addresses(address);
  utsname kernel = {};
  if (uname(&kernel) == 0) host.set_kernel(kernel.release);
  return host;
}

std::string HostText(const proto::Host& host) {
  const int nodes = host.numa_nodes_size();
  std::string text = absl::StrFormat("%d cores, %.1f GiB, %d NUMA node%s, ", host.cores(),
                                     static_cast<double>(host.memory_bytes()) / (1 << 30), nodes,
                                     nodes == 1 ? "" : "s");
  const int gpus = host.gpus_size();
  absl::StrAppend(&text, gpus == 0 ? "no GPU" : absl::StrCat(gpus, gpus == 1 ? " GPU" : " GPUs"));
  if (host.addresses_size() > 0) absl::StrAppend(&text, ", ", absl::StrJoin(host.addresses(), " "));
  return text;
}

}  // namespace weft
