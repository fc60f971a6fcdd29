#include "launcher/machine/start.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/machine/leftovers.h"
#include "process/progress_page.h"
#include "process/rank_variables.h"

namespace weft {

namespace {

// Fit for no network between hosts: loopback and the bridges that containers have on every host.
constexpr char kNeverNetworks[] = "127.0.0.0/8,docker0,virbr0,sppp";
constexpr char kNodePrefix[] = "weft-host-";
// mpirun waits for some of its requests to end before it makes more than this; ours stay.
constexpr size_t kUsualRequests = 128;

std::string NodeName(size_t host) {
  return absl::StrCat(kNodePrefix, host);
}

bool IsOnSeveralHosts(const GroupOptions& options) {
  return options.hosts.size() > 1;
}

using AddSetting = std::function<void(const std::string& name, const std::string& value)>;

// A batch system's variables tell mpirun of hosts that are none of this group's.
constexpr char kNoAllocators[] = "^alps,gridengine,loadleveler,lsf,slurm,tm";

// A run of one machine looks for no ssh, and for no network but loopback, whatever a person has set
// for runs across hosts.
void AddOneHost(const AddSetting& mca) {
  mca("plm", "isolated");
  mca("ras", kNoAllocators);
  mca("oob_tcp_if_include", "127.0.0.0/8");
  mca("pml", "ob1");         // whatever else is installed (ucx, libfabric)
  mca("btl", "self,vader");  // shared memory
}

bool IsSetByPerson(const std::string& parameter) {
  return getenv(absl::StrCat("OMPI_MCA_", parameter).c_str()) != nullptr;
}

// Its remote shell is ours: all requests come from the first host (no tree), and each daemon stays
// the child of the agent that starts it.
void AddSeveralHosts(const GroupOptions& options, const AddSetting& mca) {
  mca("plm", "rsh");
  mca("plm_rsh_agent", "weft-shim daemon");
  mca("plm_rsh_no_tree_spawn", "1");
  mca("plm_rsh_num_concurrent", absl::StrCat(std::max(kUsualRequests, options.hosts.size())));
  mca("orte_leave_session_attached", "1");
  mca("orte_do_not_resolve", "1");
  mca("pml", "ob1");
  mca("btl", "self,vader,tcp");
  for (const char* layer : {"btl_tcp", "oob_tcp"}) {
    const std::string include = absl::StrCat(layer, "_if_include");
    const std::string exclude = absl::StrCat(layer, "_if_exclude");
    if (!options.network.empty()) {
      mca(include, options.network);
    } else if (!IsSetByPerson(include) && !IsSetByPerson(exclude)) {
      mca(exclude, kNeverNetworks);
    }
  }
}

// mpirun and each rank have hwloc look at the machine. Its plugins for devices, which nobody here
// asks about, open the driver of each GPU, and the screen of an X server on "localhost": a host
// whose files do not have that name waits 10 s for a resolver that is not there (Debian 12).
constexpr char kHwlocVariable[] = "HWLOC_COMPONENTS";
constexpr char kHwlocWithoutDevices[] = "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero";

// MPI listens on one address alone (launcher/shim/bind_near.cc).
void AddListening(const GroupOptions& options, std::map<std::string, std::string>* env) {
  (*env)["WEFT_BIND_ADDRESS"] = options.address;
  const std::string library = options.programs + "/libweft_bind.so";
  // The loader takes a list apart at these.
  if (library.find_first_of(" :") != std::string::npos) return;
  std::string& preloaded = (*env)["LD_PRELOAD"];
  preloaded = preloaded.empty() ? library : absl::StrCat(library, ":", preloaded);
}

}  // namespace

std::vector<int> OwnRanks(const GroupOptions& options) {
  if (!options.hosts.empty()) return options.hosts.at(options.own_host).ranks;
  std::vector<int> ranks(static_cast<size_t>(options.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<std::string> WorkerArgv(const GroupOptions& options) {
  return {options.worker, absl::StrCat("--generation=", options.generation),
          absl::StrCat("--run-folder=", options.run_folder)};
}

std::vector<std::string> MpirunArgv(const GroupOptions& options,
                                    const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"mpirun"};
  const auto mca = [&](const std::string& name, const std::string& value) {
    argv.insert(argv.end(), {"--mca", name, value});
  };
  if (options.as_root) argv.emplace_back("--allow-run-as-root");
  argv.insert(argv.end(), {"-n", absl::StrCat(options.world_size), "--oversubscribe", "--bind-to",
                           "none", "--stdin", "none"});
  if (IsOnSeveralHosts(options)) {
    argv.insert(argv.end(), {"--noprefix", "--hostfile", HostFilePath(options), "--map-by", "seq"});
    AddSeveralHosts(options, mca);
  } else {
    AddOneHost(mca);
  }
  mca("mpi_yield_when_idle", "1");  // ranks share cores
  mca("orte_tmpdir_base", options.temporary_folder);
  mca("btl_vader_backing_directory", options.temporary_folder);
  mca("btl_vader_single_copy_mechanism", SingleCopyWord(options));
  // mpirun and its daemons announce to their ranks by CONT that they end them, so long before TERM
  // and again before KILL: shims tell their agents, who know then that the cause lies elsewhere. By
  // the time of TERM the agents have ended what is left.
  mca("odls_base_sigkill_timeout", "1");
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

std::string RankEnvironmentPath(const GroupOptions& options) {
  return options.temporary_folder + "/rank-environment";
}

std::string RankEnvironmentText(const GroupOptions& options) {
  std::string text;
  for (const auto& [name, value] : options.env) {
    absl::StrAppend(&text, name, "=", value);
    text.push_back('\0');
  }
  return text;
}

std::string HostFilePath(const GroupOptions& options) {
  return options.temporary_folder + "/hosts";
}

std::string HostFileText(const GroupOptions& options, const std::string& first_host_name) {
  std::vector<std::string> lines(static_cast<size_t>(options.world_size));
  for (size_t host = 0; host < options.hosts.size(); ++host) {
    // mpirun knows the machine that it runs on by the kernel's name for it, up to the first dot.
    const std::string node =
        host == 0 ? first_host_name.substr(0, first_host_name.find('.')) : NodeName(host);
    for (const int rank : options.hosts[host].ranks) lines.at(static_cast<size_t>(rank)) = node;
  }
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

std::optional<size_t> HostOfNode(const GroupOptions& options, const std::string& node) {
  for (size_t host = 1; host < options.hosts.size(); ++host) {
    if (node == NodeName(host)) return host;
  }
  return std::nullopt;
}

std::map<std::string, std::string> GroupEnvironment(const GroupOptions& options) {
  std::map<std::string, std::string> env;
  if (!options.is_env_for_ranks_alone) {
    env = options.env;
  } else if (!options.env.empty()) {
    env[kRankEnvironmentVariable] = RankEnvironmentPath(options);
  }
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) env[name] = value;
  };
  set(kRunVariable, options.run_id);
  set(kGenerationVariable, absl::StrCat(options.generation));
  set(kHostVariable, options.host);
  set("WEFT_SHIM_SOCKET", options.shim_socket);
  set("WEFT_RANK_SOCKET", options.rank_socket);
  set(kPagesVariable, options.pages);
  set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  set("OPENBLAS_NUM_THREADS", absl::StrCat(options.threads));
  set("TMPDIR", options.temporary_folder);
  set(kSharedMemoryFolder.ours, options.temporary_folder);
  set(kSingleCopy.ours, SingleCopyWord(options));
  // A PMIx that is not where it was built for does not find its plugin, and can do without.
  set("PMIX_MCA_pcompress_base_silence_warning", "1");
  set(kPlacesVariable, PlacesText(options.places));
  if (getenv(kHwlocVariable) == nullptr) env.emplace(kHwlocVariable, kHwlocWithoutDevices);
  if (!options.address.empty()) AddListening(options, &env);
  if (!options.programs.empty()) {
    const char* ours = getenv("PATH");
    const auto asked = env.find("PATH");
    const std::string rest = asked != env.end() ? asked->second : ours != nullptr ? ours : "";
    set("PATH", absl::StrCat(options.programs, ":", rest));
  }
  return env;
}

void AddRankVariables(int rank, int slot, int world_size, std::map<std::string, std::string>* env) {
  (*env)["WEFT_RANK"] = absl::StrCat(rank);
  (*env)["WEFT_LOCAL_RANK"] = absl::StrCat(slot);
  (*env)["WEFT_WORLD_SIZE"] = absl::StrCat(world_size);
}

bool SingleCopyPermitted() {
  std::ifstream yama("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (yama >> scope && scope != 0) return false;
  // A seccomp filter refuses the call even on ourselves.
  char from = 1;
  char to = 0;
  iovec local = {&to, 1};
  iovec remote = {&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

std::string ProgramFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : self.parent_path().string();
}

std::string Beside(const std::string& name) {
  const std::string folder = ProgramFolder();
  const std::string beside = absl::StrCat(folder, "/", name);
  return !folder.empty() && access(beside.c_str(), X_OK) == 0 ? beside : name;
}

}  // namespace weft
