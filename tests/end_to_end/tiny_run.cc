#include "tests/end_to_end/tiny_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/run/run_identity.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr char kCookie[] = "WEFT_TEST_RUN";

constexpr char kJob[] = R"(# A tiny GPT-2 on bytes of the GNU GPL.
job: {name: tiny, output_dir: .}
model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 4, n_head: 4}
data: {format: bytes, train: [{path: /usr/share/common-licenses/GPL-3}]}
training: {seq_len: 32, global_batch_size: 16, micro_batch_size: 2, steps: 60, seed: 42}
optimizer: {name: adamw, lr: 1.0e-3}
lr_scheduler: {type: constant}
parallelism: {dp: 2, pp: 2, tp: 1}
checkpoint: {interval: 10, keep_latest_k: 3}
cluster: {profile: cpu, slots: 4}
)";

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// Folders where a run keeps Open MPI's files and, when its own is deep, its socket.
constexpr const char* kSharedFolders[] = {"/dev/shm", "/tmp"};

}  // namespace

TinyRun::TinyRun() {
  std::string folder = "/tmp/weft-e2e-XXXXXX";  // short: unix socket paths end at 107 bytes
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  folder_ = folder;
  job_path_ = folder_ + "/job.yaml";
  run_folder_ = folder_ + "/tiny";
  std::filesystem::create_directory(folder_ + "/tmp");
  std::ofstream(job_path_) << kJob;
}

TinyRun::~TinyRun() {
  for (const Found& process : Processes()) KillFound(process, SIGKILL);
  Eventually(kPatienceS, [&] { return Processes().empty(); });
  std::error_code error;
  for (const std::string& path : SharedFiles()) std::filesystem::remove_all(path, error);
  if (::testing::Test::HasFailure()) {
    std::fprintf(stderr, "kept for a look: %s\n", folder_.c_str());
    return;
  }
  std::filesystem::remove_all(folder_);
}

std::unique_ptr<Child> TinyRun::Weft(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {BinaryPath("/bin/weft")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return Start(command);
}

std::unique_ptr<Child> TinyRun::RunWhereMounted(const std::string& folder, const std::string& on,
                                                const std::vector<std::string>& more) {
  return RunUnder({"/usr/bin/unshare", "--mount", "sh", "-c",
                   "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"", folder, on},
                  more);
}

std::unique_ptr<Child> TinyRun::RunUnder(std::vector<std::string> command,
                                         const std::vector<std::string>& more) {
  command.insert(command.end(), {BinaryPath("/bin/weft"), "run", job_path_});
  command.insert(command.end(), more.begin(), more.end());
  return Start(command);
}

std::unique_ptr<Child> TinyRun::Start(const std::vector<std::string>& command) {
  const std::string output = folder_ + "/start-" + std::to_string(++started_);
  return std::make_unique<Child>(
      command, std::map<std::string, std::string>{{kCookie, folder_}, {"TMPDIR", folder_ + "/tmp"}},
      output + ".out", output + ".err");
}

std::unique_ptr<Child> TinyRun::Run(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"run", job_path_};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Weft(arguments);
}

TinyRun::Outcome TinyRun::Finish(Child& child, double timeout_s) {
  const std::optional<Ended> ended = child.Wait(timeout_s);
  Outcome outcome{-1, child.Stdout(), child.Stderr()};
  if (!ended) {
    ADD_FAILURE() << "still running after " << timeout_s << " s; stdout:\n"
                  << outcome.out << "\nstderr:\n"
                  << outcome.err;
  } else {
    outcome.exit_code = ended->signal != 0 ? 128 + ended->signal : ended->exit_code;
  }
  return outcome;
}

TinyRun::Outcome TinyRun::RunToEnd(const std::vector<std::string>& more, double timeout_s) {
  const std::unique_ptr<Child> child = Run(more);
  return Finish(*child, timeout_s);
}

void TinyRun::WaitForStep(int64_t step, double timeout_s) const {
  EXPECT_TRUE(Eventually(timeout_s, [&] { return LastStep() >= step; }))
      << "step " << step << " not reached; last is " << LastStep();
}

int64_t TinyRun::LastStep() const {
  const std::vector<StepMetrics> metrics = Metrics();
  return metrics.empty() ? 0 : metrics.back().step;
}

std::set<std::string> TinyRun::Checkpoints() const {
  std::set<std::string> committed;
  for (const std::string& name : NamesIn(run_folder_ + "/checkpoint")) {
    if (name.rfind("step-", 0) == 0) committed.insert(name);
  }
  return committed;
}

std::vector<Found> TinyRun::Processes(const std::string& program) const {
  std::vector<Found> found;
  for (const Found& process : ProcessesWith(kCookie, folder_)) {
    const std::string path = process.command.substr(0, process.command.find(' '));
    if (program.empty() || std::filesystem::path(path).filename() == program) {
      found.push_back(process);
    }
  }
  return found;
}

// Other tests run beside this one, so only what bears the id of one of its run folders is its own.
// Open MPI's segments do, as their folder does.
std::set<std::string> TinyRun::SharedFiles() const {
  std::set<std::string> prefixes;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_, error)) {
    if (entry.path().filename() != kRunIdFile) continue;
    const std::string id = StatedRunId(entry.path().parent_path());
    if (!id.empty()) prefixes.insert("weft-" + id);
  }
  std::set<std::string> files;
  for (const std::string folder : kSharedFolders) {
    for (const std::string& name : NamesIn(folder)) {
      const std::string prefix = name.substr(0, sizeof("weft-0123456789abcdef") - 1);
      if (prefixes.count(prefix) > 0) files.insert(folder + "/" + name);
    }
  }
  return files;
}

// Sockets anywhere below the folder, everything in its temporary folder, its files in shared ones.
std::set<std::string> TinyRun::LeftFiles() const {
  std::set<std::string> left;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_, error)) {
    if (entry.is_socket(error)) left.insert(entry.path().string());
  }
  for (const std::string& name : NamesIn(folder_ + "/tmp")) left.insert(folder_ + "/tmp/" + name);
  left.merge(SharedFiles());
  return left;
}

void TinyRun::ExpectNothingLeft(double timeout_s) const {
  EXPECT_TRUE(Eventually(timeout_s, [&] { return Processes().empty(); }));
  for (const Found& process : Processes()) {
    ADD_FAILURE() << "still running after " << timeout_s << " s: " << process.pid << " "
                  << process.command;
  }
  for (const std::string& file : LeftFiles()) ADD_FAILURE() << "left behind: " << file;
}

const std::map<int64_t, std::string>& UndisturbedCurve() {
  static auto* const curve = new std::map<int64_t, std::string>;
  if (curve->size() == static_cast<size_t>(TinyRun::kSteps)) return *curve;
  TinyRun run;
  const TinyRun::Outcome outcome = run.RunToEnd();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  *curve = run.Curve();
  EXPECT_EQ(curve->size(), static_cast<size_t>(TinyRun::kSteps));
  return *curve;
}

}  // namespace weft
