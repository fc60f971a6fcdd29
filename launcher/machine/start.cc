#include "launcher/machine/start.h"

#include <sys/uio.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/machine/leftovers.h"

namespace weft {

std::vector<std::string> WorkerArgv(const GroupOptions& options) {
  return {options.worker, absl::StrCat("--agent=", options.agent),
          absl::StrCat("--generation=", options.generation),
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
  mca("plm", "isolated");           // this machine only: no ssh is looked for
  mca("pml", "ob1");                // whatever else is installed (ucx, libfabric)
  mca("btl", "self,vader");         // shared memory
  mca("mpi_yield_when_idle", "1");  // ranks share cores
  mca("orte_tmpdir_base", options.temporary_folder);
  mca("btl_vader_backing_directory", options.temporary_folder);
  mca("btl_vader_single_copy_mechanism", options.single_copy ? "cma" : "none");
  // When a rank is lost the others cannot finish their step: kill them at once. The default waits
  // a second twice before it names the first cause.
  mca("odls_base_sigkill_timeout", "0");
  for (const auto& [name, value] : GroupEnvironment(options)) {
    argv.insert(argv.end(), {"-x", name});
  }
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

std::map<std::string, std::string> GroupEnvironment(const GroupOptions& options) {
  std::map<std::string, std::string> env = options.env;
  env[kRunVariable] = options.run_id;
  env[kGenerationVariable] = absl::StrCat(options.generation);
  env["OMP_NUM_THREADS"] = absl::StrCat(options.threads);
  env["OPENBLAS_NUM_THREADS"] = absl::StrCat(options.threads);
  env["TMPDIR"] = options.temporary_folder;
  return env;
}

void AddRankVariables(int rank, int world_size, std::map<std::string, std::string>* env) {
  (*env)["WEFT_RANK"] = (*env)["WEFT_LOCAL_RANK"] = absl::StrCat(rank);
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

std::string Beside(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = self.parent_path() / name;
  if (!error && access(beside.c_str(), X_OK) == 0) return beside.string();
  return name;
}

}  // namespace weft
