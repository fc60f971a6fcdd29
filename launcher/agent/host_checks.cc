#include "launcher/agent/host_checks.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "data/token_file.h"
#include "launcher/agent/host_report.h"
#include "launcher/agent/nvml.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/open_mpi.h"
#include "plan/search/describe.h"
#include "plan/spec/cluster.h"
#include "plan/spec/subnet.h"
#include "process/authority.h"
#include "process/folder_token.h"

namespace weft {
namespace {

using Result = proto::CheckResult;

Result Well(absl::string_view name, absl::string_view found) {
  Result result;
  result.set_name(std::string(name));
  result.set_found(std::string(found));
  return result;
}

Result Bad(absl::string_view name, absl::string_view found, absl::string_view allowed,
           absl::string_view cure, Result::Severity severity = Result::BROKEN) {
  Result result = Well(name, found);
  result.set_severity(severity);
  result.set_allowed(std::string(allowed));
  result.set_cure(std::string(cure));
  return result;
}

std::string CountText(int count, absl::string_view one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

std::optional<int64_t> FreeBytes(const std::string& folder) {
  struct statvfs space = {};
  if (access(folder.c_str(), W_OK) != 0 || statvfs(folder.c_str(), &space) != 0) {
    return std::nullopt;
  }
  return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

}  // namespace

Result JudgeDevices(BackendKind backend, int ranks, int cores, int gpus) {
  constexpr char kName[] = "devices";
  if (backend == BackendKind::kCuda) {
    const std::string found = CountText(gpus, "GPU");
    if (gpus >= ranks) return Well(kName, found);
    if (gpus == 0) {
      return Bad(kName, "no GPU on the PCI bus",
                 absl::StrCat(CountText(ranks, "rank"), " may come to lie here"),
                 "some containers hide the bus: then the ranks' logs say what they find",
                 Result::NOTE);
    }
    return Bad(kName, found, absl::StrCat(CountText(ranks, "rank"), " may come to lie here"),
               "look at lspci and dmesg for GPUs that are gone, or name fewer slots "
               "(--hosts NAME:SLOTS)");
  }
  const std::string found = CountText(cores, "core");
  if (cores >= ranks) return Well(kName, found);
  return Bad(kName, found, absl::StrCat(CountText(ranks, "rank"), " may come to lie here"),
             "they wait for each other: name fewer slots (--hosts NAME:SLOTS), or raise the "
             "quota of the control group",
             Result::NOTE);
}

Result JudgeClock(int64_t skew_ms) {
  const std::string found =
      absl::StrFormat("%.1f s %s the coordinator's", std::abs(static_cast<double>(skew_ms)) / 1000,
                      skew_ms < 0 ? "behind" : "ahead of");
  constexpr int64_t kMostSkewMs = kClockSkewS * 1000 / 2;
  if (std::abs(skew_ms) <= kNotedSkewMs) {
    return Well("clock", std::abs(skew_ms) < 1000 ? "as the coordinator's" : found);
  }
  const bool is_broken = std::abs(skew_ms) > kMostSkewMs;
  return Bad("clock", found,
             is_broken ? absl::StrCat("at most ", kMostSkewMs / 3600000, " h can be trained with")
                       : absl::StrCat("at most ", kNotedSkewMs / 1000, " s are well"),
             "set it by NTP (chrony, systemd-timesyncd): certificates and logs go by it",
             is_broken ? Result::BROKEN : Result::NOTE);
}

Result JudgeRankMemory(std::optional<int64_t> available_bytes, int ranks, int64_t rank_bytes) {
  const int64_t needed = rank_bytes * ranks;
  if (!available_bytes) return Well("memory", "the kernel does not say");
  const std::string found = absl::StrCat(BytesText(*available_bytes), " free");
  if (*available_bytes >= needed) return Well("memory", found);
  return Bad("memory", found,
             absl::StrCat(CountText(ranks, "rank"), " of ", BytesText(rank_bytes), " need ",
                          BytesText(needed)),
             "end what else runs there, raise the control group's limit, or name fewer slots");
}

Result JudgeGpuMemory(const proto::Gpu* gpu, int64_t rank_bytes, int64_t profile_bytes) {
  constexpr char kName[] = "GPU memory";
  if (gpu == nullptr) return Well(kName, "NVML does not say");
  const std::string found = GpuMemoryText(*gpu);
  if (gpu->free_bytes() < rank_bytes) {
    return Bad(kName, found, absl::StrCat("a rank needs ", BytesText(rank_bytes)),
               "end what else runs on it, or use other slots (--include HOST:0,2)");
  }
  if (HasMemoryOfProfile(gpu->free_bytes(), profile_bytes)) return Well(kName, found);
  return Bad(kName, found, absl::StrCat("cluster.profile says ", BytesText(profile_bytes)),
             "plans are for what is free", Result::NOTE);
}

Result JudgeRankSharedMemory(std::optional<int64_t> free_bytes, int ranks, bool is_alone) {
  constexpr char kName[] = "shared memory";
  const int64_t needed = ranks * kSharedBytesPerRank;
  const std::string found = free_bytes ? absl::StrCat(BytesText(*free_bytes), " free in /dev/shm")
                                       : "/dev/shm is not there, or cannot be written";
  if (free_bytes && *free_bytes >= needed) return Well(kName, found);
  return Bad(
      kName, found,
      absl::StrCat(CountText(ranks, "rank"), ranks == 1 ? " needs " : " need ", BytesText(needed)),
      "remove what lies there, or make it larger: mount -o remount,size=..., docker run "
      "--shm-size",
      is_alone ? Result::NOTE : Result::BROKEN);
}

std::string AddressIn(const std::string& network, const std::vector<std::string>& addresses) {
  const absl::StatusOr<Subnet> subnet = ParseSubnet(network);
  for (const std::string& text : addresses) {
    if (network.empty()) return text;
    const absl::StatusOr<IpAddress> address = ParseIpAddress(text);
    if (subnet.ok() && address.ok() && subnet->Contains(*address)) return text;
  }
  return "";
}

Result JudgeNetwork(const std::string& network, const std::vector<std::string>& addresses) {
  const std::string address = AddressIn(network, addresses);
  if (!address.empty()) return Well("network", address);
  return Bad("network", addresses.empty() ? "no address" : absl::StrJoin(addresses, ", "),
             network.empty() ? "others need one to reach it"
                             : absl::StrCat("cluster.network is ", network),
             network.empty() ? "bring an interface up"
                             : "name the network that all hosts are in by cluster.network");
}

Result JudgeData(const std::vector<std::string>& expected, const std::vector<std::string>& found) {
  constexpr char kCure[] =
      "the hosts have to read the same data: mount it at the same path, or copy it anew";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i < found.size() && found[i] == expected[i]) continue;
    const size_t blank = expected[i].rfind(' ');
    const std::string path = expected[i].substr(0, blank);
    const bool is_other = i < found.size() && found[i].substr(0, found[i].rfind(' ')) == path;
    if (!is_other) return Bad("data", i < found.size() ? found[i] : path, "", kCure);
    return Bad(
        "data", absl::StrCat(path, " has other contents here (", found[i].substr(blank + 1), ")"),
        absl::StrCat("where the run was started they are ", expected[i].substr(blank + 1)), kCure);
  }
  return Well("data", expected.empty() ? "not compared"
                                       : absl::StrCat("the same ", expected.size(),
                                                      expected.size() == 1 ? " file" : " files"));
}

std::vector<std::string> DataFound(const JobSpec& job) {
  std::vector<std::string> found;
  for (const auto* sources : {&job.data.train, &job.data.valid}) {
    for (const DataSource& source : *sources) {
      const absl::StatusOr<std::unique_ptr<TokenFile>> file =
          TokenFile::Open(source.path, EncodingOf(job));
      found.push_back(file.ok() ? absl::StrCat(source.path, " ", (*file)->Fingerprint())
                                : std::string(file.status().message()));
    }
  }
  return found;
}

Result CheckSharedFolder(const SharedFolder& folder, const std::string& token) {
  struct stat entry = {};
  const std::string shared =
      absl::StrCat(folder.key, " has to be on a file system that all hosts mount at the same path");
  if (stat(folder.path.c_str(), &entry) != 0) {
    return Bad(folder.name, absl::StrCat(folder.path, ": ", std::strerror(errno)), "", shared);
  }
  if (!token.empty() && !HoldsToken(folder.path, token, folder.run_folder)) {
    return Bad(folder.name, absl::StrCat(folder.path, " is another folder here"), "", shared);
  }
  if (const std::string why = WhyNotWritable(folder.path, folder.run_folder); !why.empty()) {
    return Bad(folder.name, absl::StrCat(folder.path, " cannot be written (", why, ")"), "",
               "look at its mount, its owner and its room there");
  }
  const std::optional<int64_t> free_bytes = FreeBytes(folder.path);
  if (!free_bytes) return Well(folder.name, folder.path);
  const std::string found = absl::StrCat(BytesText(*free_bytes), " free");
  if (*free_bytes >= folder.needed_bytes) return Well(folder.name, found);
  return Bad(folder.name, absl::StrCat(found, " in ", folder.path),
             absl::StrCat("a checkpoint has ", BytesText(folder.needed_bytes)), "make room",
             Result::NOTE);
}

Result JudgeMpi(const absl::StatusOr<std::string>& found) {
  if (found.ok()) return Well("mpi", *found);
  // "what was found; what to do"
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(found.status().message(), absl::MaxSplits("; ", 1));
  return Bad("mpi", parts.first, "", parts.second);
}

namespace {

// `slots`: none where they are the first ones.
Result CheckGpuMemory(const proto::CheckHost& order, const JobSpec& job,
                      absl::Span<const int> slots, proto::Host* host) {
  DescribeGpuMemory(kNvml, host);
  std::vector<int> used(slots.begin(), slots.end());
  for (int slot = 0; slots.empty() && slot < order.ranks(); ++slot) used.push_back(slot);
  return JudgeGpuMemory(PoorestGpu(*host, used), order.rank_bytes(),
                        job.cluster.device.memory_bytes);
}

}  // namespace

std::vector<Result> RunHostChecks(const proto::CheckHost& order, const JobSpec& job,
                                  int64_t skew_ms, bool is_coordinators,
                                  absl::Span<const int> slots) {
  const bool is_alone = order.is_alone();
  const BackendKind backend = job.cluster.device.backend;
  proto::Host host;
  DescribeTopologyBelow("", &host);
  Result devices = JudgeDevices(backend, order.ranks(), UsableCores(), host.gpus_size());
  if (!is_alone) {
    if (backend == BackendKind::kCpu) host.set_mpi(FindMpi());
    const std::string software = SoftwareText(host);
    if (!software.empty()) devices.set_found(absl::StrCat(devices.found(), ", ", software));
  }
  std::vector<Result> results = {
      std::move(devices), JudgeRankSharedMemory(FreeBytes("/dev/shm"), order.ranks(), is_alone),
      CheckSharedFolder({"run folder", order.run_folder(), "job.output_dir", 0}, order.token()),
      CheckSharedFolder({"checkpoints", order.checkpoint_folder(), "checkpoint.folder",
                         order.checkpoint_bytes(), order.run_folder()},
                        order.token())};
  if (!is_alone) results.push_back(JudgeNetwork(job.hosts.network, OwnAddresses()));
  if (backend == BackendKind::kCpu && !(is_alone && is_coordinators)) {
    results.push_back(JudgeMpi(LookForMpirun()));
  }
  if (backend == BackendKind::kCuda) results.push_back(CheckGpuMemory(order, job, slots, &host));
  if (is_alone && is_coordinators) return results;
  if (backend == BackendKind::kCpu) {
    results.push_back(JudgeRankMemory(AvailableMemoryBytes(), order.ranks(), order.rank_bytes()));
  }
  results.push_back(JudgeClock(is_coordinators ? 0 : skew_ms));
  const std::vector<std::string> data = {order.data().begin(), order.data().end()};
  if (!data.empty() && !is_coordinators) results.push_back(JudgeData(data, DataFound(job)));
  return results;
}

}  // namespace weft
