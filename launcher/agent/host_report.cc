#include "launcher/agent/host_report.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/agent/nvml.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/machine.h"

namespace weft {
namespace {

constexpr int kMostCpus = 65536;
constexpr int kMpirunMs = 2000;
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

// Returns what the driver calls the GPU: "Model: \t\t NVIDIA H100 80GB HBM3" is a line of its file.
std::string ModelBelow(const std::string& root, const std::string& pci_address) {
  std::ifstream stream(root + "/proc/driver/nvidia/gpus/" + pci_address + "/information");
  std::string text;
  while (std::getline(stream, text)) {
    absl::string_view line = text;
    if (absl::ConsumePrefix(&line, "Model:")) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5 22:23:56 UTC 2024": the
// first word of digits and dots that has a dot.
std::string DriverIn(const std::string& line) {
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const bool is_number = word.find_first_not_of("0123456789.") == absl::string_view::npos;
    if (is_number && absl::StrContains(word, '.')) return std::string(word);
  }
  return "";
}

// Returns what the command prints first. It takes 4 ms where its files are in memory; one that says
// nothing for kMpirunMs is left alone.
std::string FirstWordsOfMpirun() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({.argv = {"mpirun", "--version"}, .env = {}, .stdout_fd = ends[1]});
  close(ends[1]);
  std::string text(256, '\0');
  pollfd ready = {ends[0], POLLIN, 0};
  const bool speaks = child.ok() && poll(&ready, 1, kMpirunMs) == 1;
  const ssize_t got = speaks ? read(ends[0], text.data(), text.size()) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  close(ends[0]);
  if (child.ok()) child->Stop(0);
  return text.substr(0, text.find('\n'));
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
    gpu.set_model(ModelBelow(root, gpu.pci_address()));
  }
  host->set_nvidia_driver(DriverIn(LineIn(root + "/proc/driver/nvidia/version")));
}

std::string MpiOf(absl::string_view line) {
  constexpr absl::string_view kBegin = "mpirun (Open MPI) ";
  return absl::ConsumePrefix(&line, kBegin) && !line.empty() ? absl::StrCat("Open MPI ", line) : "";
}

std::string FindMpi() {
  return MpiOf(FirstWordsOfMpirun());
}

std::string SoftwareText(const proto::Host& host) {
  std::vector<std::string> parts;
  if (!host.mpi().empty()) parts.push_back(host.mpi());
  if (host.gpus_size() > 0 && !host.gpus(0).model().empty()) parts.push_back(host.gpus(0).model());
  if (!host.nvidia_driver().empty()) parts.push_back("driver " + host.nvidia_driver());
  return absl::StrJoin(parts, ", ");
}

proto::Host DescribeHost() {
  proto::Host host;
  host.set_cores(UsableCores());
  host.set_memory_bytes(TotalMemoryBytes().value_or(0));
  host.set_available_bytes(AvailableMemoryBytes().value_or(0));
  DescribeTopologyBelow("", &host);
  DescribeGpuMemory(kNvml, &host);
  for (const std::string& address : OwnAddresses()) host.add_addresses(address);
  utsname kernel = {};
  if (uname(&kernel) == 0) host.set_kernel(kernel.release);
  host.set_mpi(FindMpi());
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
