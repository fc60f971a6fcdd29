#include "launcher/machine/doctor.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/open_mpi.h"
#include "launcher/machine/probe_run.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"
#include "plan/search/describe.h"
#include "process/version.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr int kProgramMs = 10000;  // for --version, on a busy machine
constexpr int kDoctorPollMs = 5;
constexpr int64_t kLeastFreeBytes = int64_t{1} << 30;
constexpr rlim_t kLeastFiles = 1024;
constexpr size_t kMostShown = 4;  // of a list, in one line

std::string TextOf(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// The first line that a program prints. NotFound if it is not there, Unavailable with what it said
// if it fails.
absl::StatusOr<std::string> FirstLineOf(const std::vector<std::string>& argv) {
  const int file = memfd_create("weft-doctor", MFD_CLOEXEC);
  if (file < 0) return absl::UnavailableError("cannot make a file in memory");
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({.argv = argv, .env = {}, .stdout_fd = file, .stderr_fd = file});
  if (!child.ok()) {
    close(file);
    return child.status();
  }
  for (int waited = 0; !child->Ended() && waited < kProgramMs; waited += kDoctorPollMs) {
    usleep(kDoctorPollMs * 1000);
  }
  const bool ended = child->Ended().has_value();
  const int status = ended ? *child->Ended() : child->Stop(0);
  std::string text(4096, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(file, text.data(), text.size(), 0))));
  close(file);
  const std::string line = text.substr(0, text.find('\n'));
  if (!ended) {
    return absl::UnavailableError(
        absl::StrCat(argv[0], " did not end within ", kProgramMs / 1000, " s"));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return line;
  return absl::UnavailableError(absl::StrCat(argv[0], " failed: ", line));
}

std::string Shortened(const std::vector<std::string>& items) {
  const size_t shown = std::min(items.size(), kMostShown);
  const std::string text =
      absl::StrJoin(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  return shown == items.size() ? text : absl::StrCat(text, ", ...");
}

std::string DevicesText(const std::vector<FoundDevice>& devices) {
  if (devices.empty()) return "no device";
  const bool alike = std::all_of(devices.begin(), devices.end(), [&](const FoundDevice& device) {
    return device.name == devices[0].name && device.memory_bytes == devices[0].memory_bytes;
  });
  std::vector<std::string> names;
  for (const FoundDevice& device : devices) {
    names.push_back(absl::StrCat(device.name, ", ", BytesText(device.memory_bytes)));
  }
  return alike ? absl::StrCat(devices.size(), " x ", names[0]) : absl::StrJoin(names, "; ");
}

// The ranks of CPU runs are started by it; others do not need it.
Finding JudgeMpi(const absl::StatusOr<std::string>& version, const absl::Status& loopback,
                 bool needed) {
  const absl::Status& status = version.ok() ? loopback : version.status();
  if (status.ok()) return {"mpi", Health::kOk, *version};
  // "what was found; what to do"
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(status.message(), absl::MaxSplits("; ", 1));
  return {"mpi", needed ? Health::kBroken : Health::kNote, parts.first, parts.second};
}

Finding JudgeSlurm() {
  std::vector<std::string> found;
  for (const char* program : {"srun", "sinfo"}) {
    const absl::StatusOr<std::string> version = FirstLineOf({program, "--version"});
    if (version.ok()) found.push_back(absl::StrCat(program, ": ", *version));
  }
  if (!found.empty()) return {"slurm", Health::kOk, absl::StrJoin(found, ", ")};
  if (const char* const job = getenv("SLURM_JOB_ID")) {
    return {"slurm", Health::kNote,
            absl::StrCat("this is Slurm job ", job, ", but srun is not in PATH"),
            "load its module, or mount its programs into the container; weft run --set "
            "cluster.scheduler=none runs on this machine alone"};
  }
  return {"slurm", Health::kOk, "not found: runs are of this machine, or of --hosts"};
}

Finding JudgeMemory() {
  const std::optional<int64_t> total = TotalMemoryBytes();
  const std::optional<int64_t> free = AvailableMemoryBytes();
  if (!total || !free) {
    return {"memory", Health::kNote, "the kernel does not say how much there is", "mount /proc"};
  }
  Finding finding{"memory", Health::kOk,
                  absl::StrCat(BytesText(*total), " for us (control group and machine), ",
                               BytesText(*free), " of it free")};
  if (*free < kLeastFreeBytes) {
    finding.health = Health::kNote;
    finding.cure = "end what else runs, or raise the limit: few models fit";
  }
  return finding;
}

Finding JudgeLimits() {
  const auto text = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : absl::StrCat(value);
  };
  rlimit files = {};
  rlimit locked = {};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  Finding finding{
      "limits", Health::kOk,
      absl::StrCat(text(files.rlim_cur), " open files, ", text(locked.rlim_cur),
                   locked.rlim_cur == RLIM_INFINITY ? "" : " bytes of", " locked memory")};
  if (files.rlim_cur < kLeastFiles) {
    finding.health = Health::kNote;
    finding.cure = absl::StrCat("many ranks need more open files: ulimit -n ", 4 * kLeastFiles);
  }
  return finding;
}

// Leases and timeouts count by the monotonic clock; only times of logs and ledgers come from this.
Finding JudgeClock() {
  timex state = {};
  const bool known = adjtimex(&state) >= 0;
  const std::string source = std::string(absl::StripSuffix(
      TextOf("/sys/devices/system/clocksource/clocksource0/current_clocksource"), "\n"));
  const std::string by = source.empty() ? "" : absl::StrCat(", by ", source);
  if (!known) return {"clock", Health::kOk, absl::StrCat("the kernel does not say more", by)};
  const bool synchronised = (state.status & STA_UNSYNC) == 0;
  return {"clock", Health::kOk,
          absl::StrCat(synchronised ? "synchronised" : "not synchronised with others", by)};
}

absl::StatusOr<FoundBackend> ProbeBackend(BackendKind backend, const std::atomic<bool>* stop) {
  ProbeRun run;
  run.backend = backend;
  run.seconds = 1;
  run.stop = stop;
  ASSIGN_OR_RETURN(const std::string json, ProbeDevices(run));
  return ReadBackend(json);
}

Finding SharedMemoryFinding() {
  struct statvfs space = {};
  const int cores = UsableCores();
  if (access("/dev/shm", W_OK) != 0 || statvfs("/dev/shm", &space) != 0) {
    return JudgeSharedMemory(std::nullopt, 0, cores);
  }
  const auto block = static_cast<int64_t>(space.f_frsize);
  return JudgeSharedMemory(static_cast<int64_t>(space.f_blocks) * block,
                           static_cast<int64_t>(space.f_bavail) * block, cores);
}

}  // namespace

Words WordsOf(Health) {
  static constexpr absl::string_view kWords[] = {"ok", "note", "broken"};
  return kWords;
}

bool Examination::sound() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& each) { return each.health == Health::kBroken; });
}

absl::StatusOr<FoundBackend> ReadBackend(const std::string& json) {
  const nlohmann::json read = ParseJson(json).value_or(nullptr);
  if (!read.is_object() || !read.contains("versions") || !read["versions"].is_string() ||
      !read.contains("devices") || !read["devices"].is_array()) {
    return absl::InternalError("weft-worker --probe did not print its devices");
  }
  FoundBackend backend;
  backend.versions = read["versions"].get<std::string>();
  for (const auto& device : read["devices"]) {
    if (!device.is_object() || !device.contains("name") || !device["name"].is_string() ||
        !device.contains("memory_bytes") || !device["memory_bytes"].is_number_integer()) {
      return absl::InternalError("weft-worker --probe printed a device without name or memory");
    }
    backend.devices.push_back(
        {device["name"].get<std::string>(), device["memory_bytes"].get<int64_t>()});
  }
  if (!read.contains("notes")) return backend;
  for (const auto& note : read["notes"]) {
    if (!note.is_string())
      return absl::InternalError("weft-worker --probe printed a note that is not text");
    backend.notes.push_back(note.get<std::string>());
  }
  return backend;
}

Finding JudgePrograms(
    const std::string& own,
    const std::vector<std::pair<std::string, absl::StatusOr<std::string>>>& others) {
  std::vector<std::string> wrong;
  std::vector<std::string> names = {"weft"};
  for (const auto& [name, version] : others) {
    names.push_back(name);
    if (!version.ok()) wrong.push_back(std::string(version.status().message()));
    if (version.ok() && *version != own) wrong.push_back(absl::StrCat(name, " is ", *version));
  }
  if (wrong.empty()) {
    return {"programs", Health::kOk, absl::StrCat(absl::StrJoin(names, ", "), ": one build")};
  }
  return {"programs", Health::kBroken,
          absl::StrCat("weft is ", own, ", but ", absl::StrJoin(wrong, "; ")),
          "install all of one build into one folder"};
}

NeededBackends BackendsNeeded(const InstalledBackends& installed, bool has_gpu,
                              bool trains_on_gpus) {
  return {.cpu = !trains_on_gpus && (installed.cpu || !installed.cuda),
          .cuda = installed.cuda && (has_gpu || !installed.cpu)};
}

Finding JudgeBackend(absl::string_view name, const absl::StatusOr<FoundBackend>& backend,
                     bool needed) {
  const std::string subject = absl::StrCat(name, " backend");
  if (!backend.ok()) {
    absl::string_view words = backend.status().message();
    absl::ConsumePrefix(&words, "weft-worker --probe failed: ");
    absl::ConsumePrefix(&words, absl::StrCat("backend ", name, ": "));
    return {subject, needed ? Health::kBroken : Health::kNote, std::string(words)};
  }
  const std::string found = absl::StrCat(DevicesText(backend->devices), "; ", backend->versions);
  if (!backend->devices.empty()) {
    const bool all_well = backend->notes.empty();
    return {subject, all_well ? Health::kOk : Health::kNote, found,
            absl::StrJoin(backend->notes, "; ")};
  }
  return {subject, needed ? Health::kBroken : Health::kNote, found};
}

std::string CpuFeatures(const std::string& cpuinfo) {
  std::vector<std::string> flags;
  for (const absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    if (!absl::StartsWith(line, "flags")) continue;
    flags = absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    break;
  }
  std::vector<std::string> found;
  for (const char* feature : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (std::find(flags.begin(), flags.end(), feature) != flags.end()) found.emplace_back(feature);
  }
  return absl::StrJoin(found, ", ");
}

Finding JudgeCpu(const std::string& cpuinfo) {
  const std::string features = CpuFeatures(cpuinfo);
  if (features.empty()) {
    return {"cpu", Health::kNote, "none of avx2, avx512f, avx512_bf16 and amx_bf16",
            "products will be slow"};
  }
  const bool bf16 = absl::StrContains(features, "bf16");
  return {"cpu", Health::kOk,
          absl::StrCat(features, bf16 ? "" : "; no products in bf16: they go by way of fp32")};
}

Finding JudgeCores(int cores, std::optional<double> load) {
  Finding finding{"cores", Health::kOk,
                  absl::StrCat(cores, " for us (affinity and control group)")};
  if (!load) return finding;
  absl::StrAppend(&finding.found, absl::StrFormat(", load %.1f", *load));
  if (*load > cores) {
    finding.health = Health::kNote;
    finding.cure = "others want these cores too: steps take longer than planned";
  }
  return finding;
}

Finding JudgeSharedMemory(std::optional<int64_t> total_bytes, int64_t free_bytes, int cores) {
  const int64_t wanted = cores * kSharedBytesPerRank;
  Finding finding{"/dev/shm", Health::kOk,
                  total_bytes ? absl::StrCat(BytesText(*total_bytes), ", ", BytesText(free_bytes),
                                             " of it free")
                              : "is not there, or cannot be written"};
  if (!total_bytes || free_bytes < wanted) {
    finding.health = Health::kNote;
    finding.cure = absl::StrCat("ranks exchange data through /tmp, which is slower; give it ",
                                BytesText(wanted), " or more (docker run --shm-size)");
  }
  return finding;
}

Finding JudgeLeftovers(const std::vector<std::string>& folders) {
  if (folders.empty()) return {"leftovers", Health::kOk, "none"};
  return {"leftovers", Health::kNote,
          absl::StrCat(folders.size(), " folders of runs that are over: ", Shortened(folders)),
          "remove them; the next start of the same run does, too"};
}

absl::StatusOr<Examination> Examine(const std::atomic<bool>* stop) {
  Examination result;
  std::vector<std::pair<std::string, absl::StatusOr<std::string>>> programs;
  for (const char* name : {"weftd", "weft-worker"}) {
    programs.emplace_back(name, FirstLineOf({Beside(name), "--version"}));
  }
  const absl::StatusOr<FoundBackend> cpu = ProbeBackend(BackendKind::kCpu, stop);
  const absl::StatusOr<FoundBackend> cuda = ProbeBackend(BackendKind::kCuda, stop);
  const absl::StatusOr<std::string> mpirun = FindOpenMpi();
  if (stop != nullptr && *stop) return absl::CancelledError("stopped");
  if (cpu.ok()) result.cpu = *cpu;
  if (cuda.ok()) result.cuda = *cuda;
  const bool trains_on_gpus = cuda.ok() && !cuda->devices.empty();
  const auto is_installed = [](const char* file) {
    return access(Beside(file).c_str(), R_OK) == 0;
  };
  const NeededBackends needed = BackendsNeeded(
      {.cpu = is_installed("libweft_cpu.so"), .cuda = is_installed("libweft_cuda.so")},
      access("/dev/nvidia0", F_OK) == 0, trains_on_gpus);
  result.findings = {
      JudgePrograms(VersionText(), programs),
      JudgeBackend(WordOf(BackendKind::kCpu), cpu, needed.cpu),
      JudgeBackend(WordOf(BackendKind::kCuda), cuda, needed.cuda),
      JudgeMpi(mpirun, CheckLoopback(), /*needed=*/cpu.ok() && !trains_on_gpus),
      JudgeSlurm(),
      JudgeCpu(TextOf("/proc/cpuinfo")),
      JudgeCores(UsableCores(), LoadAverage()),
      JudgeMemory(),
      SharedMemoryFinding(),
      JudgeLeftovers(TemporaryFoldersLeft()),
      JudgeLimits(),
      JudgeClock(),
  };
  return result;
}

}  // namespace weft
