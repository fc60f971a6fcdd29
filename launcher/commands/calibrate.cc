// weft calibrate: measures this machine, and the links to others like it, and writes the cluster
// profile that describes them.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "data/whole_file.h"
#include "launcher/commands/calibrate_hosts.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/host_options.h"
#include "launcher/commands/option_checks.h"
#include "launcher/job_file/cluster_yaml.h"
#include "launcher/job_file/yaml_tree.h"
#include "launcher/machine/calibration.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/open_mpi.h"
#include "launcher/machine/probe_run.h"
#include "plan/errors.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/value_text.h"
#include "process/signals.h"
#include "process/version.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr double kBusyLoadPerCore = 0.5;

struct CalibrateArguments {
  std::string program;
  std::string output;
  std::string backend = "cpu";
  int slots = 0;  // 0: as many as the machine has
  int threads = 1;
  double seconds = 20;
  std::string profile;  // of each host, instead of this machine
  std::string links;    // links.json of a run
  HostWords hosts;
  std::vector<std::string> sets;  // of the run that measures them
  std::optional<int> nics;        // of a host
};

std::string HostName() {
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "machine";
  return name.data();
}

// Devices of the backend, by what it says itself. A driver or a library that is missing makes the
// choice of the backend wrong; it is nothing to try again.
absl::StatusOr<int> DeviceCount(const ProbeRun& run) {
  const absl::StatusOr<std::string> devices = ProbeDevices(run);
  if (absl::IsUnavailable(devices.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend: ", WordOf(run.backend), ": ", devices.status().message()));
  }
  RETURN_IF_ERROR(devices.status());
  const nlohmann::json json = ParseJson(*devices).value_or(nullptr);
  if (!json.is_object() || !json.contains("devices") || !json["devices"].is_array()) {
    return absl::InternalError("weft-worker --probe did not print its devices");
  }
  const auto count = static_cast<int>(json["devices"].size());
  if (count > 0) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("--backend: ", WordOf(run.backend), " finds no device on this machine"));
}

absl::StatusOr<Cluster> Measure(const CalibrateArguments& arguments, const std::string& folder,
                                MachineFacts facts, ProbeRun run) {
  const bool cpu = facts.backend == BackendKind::kCpu;
  int devices = facts.cores;
  if (!cpu) {
    ASSIGN_OR_RETURN(devices, DeviceCount(run));
  }
  facts.slots = arguments.slots > 0 ? arguments.slots : devices;
  if (!cpu && facts.slots > devices) {
    return absl::InvalidArgumentError(absl::StrCat("--slots: ", facts.slots, " is more than the ",
                                                   devices, " devices of this machine"));
  }
  std::cout << "measuring one worker: matrix products, memory, attention (about "
            << absl::StrFormat("%.0f", arguments.seconds) << " s)" << std::endl;
  ASSIGN_OR_RETURN(const std::string rates, ProbeRates(run));
  std::string links;
  run.ranks = cpu ? std::max(2, facts.slots) : facts.slots;
  if (run.ranks > 1) {
    std::cout << "measuring links among " << run.ranks << " workers" << std::endl;
    ASSIGN_OR_RETURN(links, ProbeLinks(run));
  }
  std::cout << "measuring storage in " << folder << std::endl;
  facts.storage_bytes_per_s = MeasureStorage(folder);
  return ClusterFromProbes(facts, rates, links);
}

// The profile that was named, instead of what is measured.
absl::StatusOr<Cluster> NamedProfile(const std::string& name) {
  Issues issues;
  Cluster cluster =
      ReadCluster(Value::Scalar(name, {"--profile", 0, 1}), ClusterFolders("."), ".", &issues);
  if (!issues.empty()) return absl::InvalidArgumentError(issues.Text());
  return cluster;
}

// The hosts that are named, and what the file of --links holds: who asks in vain hears it at once.
absl::StatusOr<std::vector<ListedHost>> TakeLinks(const CalibrateArguments& arguments,
                                                  std::string* links) {
  if (!arguments.links.empty()) {
    absl::StatusOr<std::string> text = ReadWholeFile(arguments.links, kMostLinksBytes);
    if (!text.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--links: ", text.status().message()));
    }
    *links = *std::move(text);
  }
  ASSIGN_OR_RETURN(std::vector<ListedHost> hosts, HostsOf(arguments.hosts));
  if (hosts.size() == 1) {
    return absl::InvalidArgumentError("--hosts: one host has no links to others; name two or more");
  }
  if (hosts.empty() && !arguments.sets.empty()) {
    return absl::InvalidArgumentError("--set: is for the run on --hosts; name these too");
  }
  if (hosts.empty() && links->empty() && arguments.nics) {
    return absl::InvalidArgumentError(
        "--nics: is for links between hosts; say --hosts or --links too");
  }
  if (hosts.empty() && links->empty() && !arguments.profile.empty()) {
    return absl::InvalidArgumentError(
        "--profile: links are added to it; say --hosts or --links, or leave it out to measure");
  }
  return hosts;
}

// Adds what is between hosts, where that is asked for.
absl::Status AddHosts(const CalibrateArguments& arguments, const std::string& path,
                      const std::vector<ListedHost>& hosts, const std::atomic<bool>& stop,
                      std::string links, Cluster* cluster) {
  if (!hosts.empty()) {
    JobFileOptions named;
    TakeNamedHosts(hosts, &named);
    HostsProbe probe{.words = arguments.hosts};
    probe.slots = named.named_slots > 0 ? named.named_slots : cluster->slots_per_node;
    std::cout << "measuring links among " << hosts.size() << " hosts, " << probe.slots
              << " workers on each" << std::endl;
    probe.hosts = static_cast<int>(hosts.size());
    probe.threads = arguments.threads;
    probe.sets = arguments.sets;
    probe.seconds = arguments.seconds;
    probe.folder = std::filesystem::absolute(path).replace_extension("").string() + "-links";
    probe.stop = &stop;
    ASSIGN_OR_RETURN(links, MeasureOnHosts(probe, *cluster));
  }
  if (links.empty()) return absl::OkStatus();
  const bool is_cpu = cluster->device.backend == BackendKind::kCpu;
  const int unsaid = is_cpu ? 1 : cluster->nics_per_node;
  const absl::Status added = AddLinksAcrossHosts(links, arguments.nics.value_or(unsaid), cluster);
  if (added.ok() || arguments.links.empty()) return added;
  return {added.code(), absl::StrCat("--links: ", arguments.links, ": ", added.message())};
}

absl::Status OutputError(const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat("--output: ", status.message(), "; choose another"));
}

absl::Status Write(const Cluster& cluster, const std::string& path, double seconds) {
  const std::string text = absl::StrCat(
      "# Measured by weft calibrate on ", HostName(), ", ",
      absl::FormatTime("%Y-%m-%d %H:%M", absl::Now(), absl::UTCTimeZone()), " UTC, in ",
      absl::StrFormat("%.0f", seconds), " s, by ", VersionText(),
      ".\n# Peaks are the best that was measured.",
      cluster.inter_node == LinkProfile{}
          ? " There is no inter_node: one machine cannot measure its\n# network (--hosts)."
          : "",
      " Keys: docs/clusters.md.\n", LinesText(ClusterTree(cluster), 0));
  // The text has to read back as `weft plan --cluster` will read it, or nothing is written.
  Issues issues;
  const std::optional<Value> tree = ParseYaml(text, path, 0, &issues);
  if (tree && !(ReadCluster(*tree, {}, "", &issues) == cluster) && issues.empty()) {
    return absl::InternalError("the profile does not read back as it was measured");
  }
  if (!issues.empty()) return absl::InternalError(issues.Text());
  const std::string part = absl::StrCat(path, ".part");
  absl::Status written = WriteWholeFile(part, text);
  if (!written.ok()) return OutputError(written);
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (!error) return absl::OkStatus();
  written =
      absl::InvalidArgumentError(absl::StrCat(path, ": cannot be written: ", error.message()));
  std::filesystem::remove(part, error);
  return OutputError(written);
}

void Summarize(const CalibrateArguments& arguments, const Cluster& cluster,
               const std::string& path) {
  const DeviceProfile& device = cluster.device;
  std::cout << absl::StrFormat(
      "measured %s: %d slots, %.3g GFLOP/s fp32 (%.0f %% of it sustained), %.3g GB/s memory\n",
      device.name, cluster.slots_per_node, device.peak_flops_per_s.fp32 / 1e9,
      100 * device.matmul_efficiency.fp32, device.peak_memory_bytes_per_s / 1e9);
  std::cout << absl::StrFormat("  links %.3g us + %.3g GB/s, %d products and %d transfers timed\n",
                               1e6 * cluster.intra_node.latency_s,
                               cluster.intra_node.bytes_per_s / 1e9, device.matmuls.size(),
                               cluster.collectives.size());
  if (cluster.inter_node != LinkProfile{}) {
    std::cout << absl::StrFormat(
        "  between hosts %.3g us + %.3g GB/s a NIC, of which a host has %d\n",
        1e6 * cluster.inter_node.latency_s, cluster.inter_node.bytes_per_s / 1e9, cluster.nics());
  }
  std::cout << "written: " << path << "\ntry next:\n  " << arguments.program
            << " plan configs/jobs/quickstart.yaml --without-data --set parallelism.dp=auto --set "
               "parallelism.pp=auto --cluster "
            << path << "\n";
}

int Calibrate(const CalibrateArguments& arguments) {
  std::string links;
  const absl::StatusOr<std::vector<ListedHost>> hosts = TakeLinks(arguments, &links);
  if (!hosts.ok()) return Fail(hosts.status());
  MachineFacts facts;
  facts.backend = ParseBackend(arguments.backend).value_or(BackendKind::kCpu);
  facts.cores = UsableCores();
  facts.total_memory_bytes = TotalMemoryBytes().value_or(0);
  facts.free_memory_bytes = AvailableMemoryBytes().value_or(facts.total_memory_bytes);
  const std::string path =
      arguments.output.empty() ? absl::StrCat(HostName(), ".yaml") : arguments.output;
  facts.name = std::filesystem::path(path).stem().string();
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  if (const absl::Status output = CheckOutputFile(path); !output.ok()) {
    return Fail(OutputError(output));
  }
  const std::optional<double> load = LoadAverage();
  if (load && *load > kBusyLoadPerCore * facts.cores) {
    std::cout << absl::StrFormat(
        "note: this machine is busy (load %.1f on %d cores): rates will come out low; measure it "
        "idle\n",
        *load, facts.cores);
  }
  std::atomic<bool> stop{false};
  const SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&stop](int) { stop = true; });
  const absl::Time start = absl::Now();
  ProbeRun run;
  run.backend = facts.backend;
  run.threads = arguments.threads;
  run.seconds = arguments.seconds;
  run.stop = &stop;
  absl::StatusOr<Cluster> cluster = arguments.profile.empty()
                                        ? Measure(arguments, folder, facts, run)
                                        : NamedProfile(arguments.profile);
  if (absl::IsCancelled(cluster.status())) return kExitInterrupted;
  if (!cluster.ok()) return Fail(cluster.status());
  if (!arguments.profile.empty()) cluster->name = facts.name;
  const absl::Status added = AddHosts(arguments, path, *hosts, stop, std::move(links), &*cluster);
  if (absl::IsCancelled(added)) return kExitInterrupted;
  if (!added.ok()) return Fail(added);
  const absl::Status written = Write(*cluster, path, absl::ToDoubleSeconds(absl::Now() - start));
  if (!written.ok()) return Fail(written);
  Summarize(arguments, *cluster, path);
  return kExitOk;
}

}  // namespace

void AddCalibrate(CLI::App& app, const std::string& program, int* exit_code) {
  const auto arguments = std::make_shared<CalibrateArguments>();
  arguments->program = program;
  CLI::App* calibrate =
      app.add_subcommand("calibrate", "measure this machine and write its cluster profile");
  calibrate->add_option("--output", arguments->output, "the file to write; default <host>.yaml");
  calibrate->add_option("--slots", arguments->slots, "workers that the machine shall hold")
      ->check(WholeNumber(1, 1024));
  calibrate->add_option("--backend", arguments->backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  calibrate->add_option("--threads", arguments->threads, "CPU: BLAS threads of a worker")
      ->check(WholeNumber(1, 1024));
  calibrate->add_option("--seconds", arguments->seconds, "how long to measure one worker")
      ->check(NumberWithin(0.5, 45));
  CLI::Option* profile = calibrate->add_option(
      "--profile", arguments->profile,
      "add links to this profile, a file or a name; this machine is not measured");
  CLI::Option* links = calibrate->add_option("--links", arguments->links,
                                             "links.json of a run with comm.measure_seconds");
  AddHostNames(*calibrate, &arguments->hosts);
  calibrate->add_option("--set", arguments->sets, "a key of the run on --hosts")
      ->allow_extra_args(false);
  calibrate->add_option("--nics", arguments->nics, "NICs that a host's workers share; CPU: 1")
      ->check(WholeNumber(1, 1024));
  links->excludes("--hosts")->excludes("--hostfile");
  profile->excludes("--slots")->excludes("--backend");
  calibrate->callback([arguments, exit_code] {
    ForgetOuterMpirun();
    *exit_code = Calibrate(*arguments);
  });
}

}  // namespace weft
