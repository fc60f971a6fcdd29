#include "bench/weftd_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

WeftdProcess::WeftdProcess(const std::string& program, const std::string& folder,
                           const std::vector<std::string>& arguments)
    : folder_(folder) {
  std::vector<std::string> words = {program, "--socket=" + folder + "/weftd.sock"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_ = fork();
  CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CHECK(std::freopen((folder + "/weftd.log").c_str(), "a", stderr) != nullptr);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

WeftdProcess::~WeftdProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int64_t WeftdProcess::ResidentBytes() const {
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  std::string word;
  int64_t kib = 0;
  while (status >> word && word != "VmRSS:") continue;
  status >> kib;
  return kib << 10;
}

double WeftdProcess::CpuSeconds() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  std::string word;
  double ticks = 0;
  for (int field = 3; rest >> word && field <= 15; ++field) {
    if (field >= 14) ticks += std::atof(word.c_str());
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

absl::StatusOr<std::unique_ptr<BenchFolder>> BenchFolder::Make(const std::string& parent) {
  std::string path = parent + "/weft-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("folder ", path, ": cannot be made; name another one to work in"));
  }
  return std::unique_ptr<BenchFolder>(new BenchFolder(std::move(path)));
}

BenchFolder::BenchFolder(std::string path) : path_(std::move(path)) {}

BenchFolder::~BenchFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

void AllowManyFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace weft
