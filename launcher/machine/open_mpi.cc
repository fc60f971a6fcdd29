#include "launcher/machine/open_mpi.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"

namespace weft {
namespace {

constexpr int kMpirunMs = 10000;  // for --version, on a busy machine
constexpr absl::string_view kCure =
    "; the cpu backend's ranks are started by Open MPI 4: install it (Debian: openmpi-bin), or put "
    "its folder first in PATH";

// Beginnings of names. Open MPI 4's children find all of these; of the MCA parameters among them
// those of its launcher alone are meant, which no child's own mpirun may inherit.
constexpr absl::string_view kOfMpirun[] = {
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_ess=",
    "OMPI_MCA_ess_",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix_",
    "OMPI_APP_CTX_",
    "OMPI_ARGV=",
    "OMPI_COMMAND=",
    "OMPI_FILE_LOCATION=",
    "OMPI_FIRST_RANKS=",
    "OMPI_NUM_APP_CTX=",
    "OMPI_UNIVERSE_",
    "OMPI_MCA_initial_wdir=",
    "PMIX_",
    "PMI_",
    "HYDI_",
    "HYDRA_",
    "MPI_LOCALNRANKS=",
    "MPI_LOCALRANKID=",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint=",
};

bool IsOfMpirun(absl::string_view variable) {
  return std::any_of(std::begin(kOfMpirun), std::end(kOfMpirun),
                     [&](absl::string_view begin) { return absl::StartsWith(variable, begin); });
}

std::string LoopbackError(absl::string_view call, int error) {
  return absl::StrCat("cannot ", call, " 127.0.0.1 (", std::strerror(error), ")");
}

// Empty: this host reaches itself.
std::string WhyNoLoopback() {
  const Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor calling(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening.valid() || !calling.valid()) return LoopbackError("make a socket for", errno);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (bind(listening.get(), name, size) != 0 || listen(listening.get(), 1) != 0 ||
      getsockname(listening.get(), name, &size) != 0) {
    return LoopbackError("listen at", errno);
  }
  // The kernel itself answers: within this host a call is through at once, or never.
  if (connect(calling.get(), name, size) == 0) return "";
  if (errno != EINPROGRESS) return LoopbackError("reach", errno);
  constexpr int kPatienceMs = 1000;
  for (int waited = 0; waited < kPatienceMs; waited += 10) {
    const Descriptor accepted(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accepted.valid()) return "";
    usleep(10000);
  }
  return LoopbackError("reach", ETIMEDOUT);
}

}  // namespace

std::vector<std::string> VariablesOfMpirun(const std::vector<std::string>& environment) {
  std::vector<std::string> names;
  for (const std::string& variable : environment) {
    if (IsOfMpirun(variable)) names.push_back(variable.substr(0, variable.find('=')));
  }
  return names;
}

void ForgetOuterMpirun() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  for (const std::string& name : VariablesOfMpirun(environment)) unsetenv(name.c_str());
}

int CopiesStarted() {
  int copies = 1;
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const value = getenv(name);
    int stated = 1;
    if (value != nullptr && absl::SimpleAtoi(value, &stated)) copies = std::max(copies, stated);
  }
  return copies;
}

absl::StatusOr<std::string> JudgeMpirun(const std::string& path,
                                        const absl::StatusOr<ProgramAnswer>& answer) {
  if (path.empty()) return absl::InvalidArgumentError(absl::StrCat("no mpirun in PATH", kCure));
  // A host that is too busy to answer has told nothing against its mpirun: the run will.
  if (absl::IsDeadlineExceeded(answer.status())) return std::string(answer.status().message());
  if (!answer.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(answer.status().message(), kCure));
  }
  const std::string words = answer->out.empty() ? answer->err : answer->out;
  const std::string first(absl::StripPrefix(words.substr(0, words.find('\n')), "mpirun "));
  if (answer->exit_code != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " --version fails with exit code ",
                                                   answer->exit_code, ": ", first, kCure));
  }
  absl::string_view line = first;
  if (!absl::ConsumePrefix(&line, "(Open MPI) ")) {
    const bool is_mpich = absl::StrContains(words, "HYDRA") || absl::StrContains(words, "MPICH");
    return absl::InvalidArgumentError(
        absl::StrCat(path, is_mpich ? " is MPICH's" : "", " (it says: ", first, ")", kCure));
  }
  if (!absl::StartsWith(line, "4.")) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is Open MPI ", line, "'s", kCure));
  }
  return absl::StrCat("Open MPI ", line);
}

absl::StatusOr<std::string> FindOpenMpi() {
  const std::string path = FindInPath("mpirun");
  if (path.empty()) return JudgeMpirun("", ProgramAnswer());
  return JudgeMpirun(path, AskProgram({path, "--version"}, "", kMpirunMs));
}

absl::StatusOr<std::string> LookForMpirun() {
  const std::string path = FindInPath("mpirun");
  if (path.empty()) return JudgeMpirun("", ProgramAnswer());
  return path;
}

absl::Status CheckLoopback() {
  const std::string why = WhyNoLoopback();
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("this host does not reach itself: ", why,
                   ", as mpirun and its ranks have to; bring the interface up: ip link set lo up"));
}

}  // namespace weft
