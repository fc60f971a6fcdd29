// `weft doctor` finds out about this machine: one finding a subject, each with a judgement and,
// unless all is well, with what to do about it. The Judge functions are pure; Examine asks the
// kernel, the programs that lie beside this one, and weft-worker --probe. Every wait is bounded.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/words.h"

namespace weft {

// kNote: weft runs all the same. kBroken: what was installed to be used cannot be.
enum class Health { kOk, kNote, kBroken };
Words WordsOf(Health);  // "ok", "note", "broken"

struct Finding {
  std::string subject;  // "cuda backend"
  Health health = Health::kOk;
  std::string found;
  std::string cure = {};  // empty if there is nothing to do, or `found` says it
  friend bool operator==(const Finding&, const Finding&) = default;
};

// A device of a backend, as the backend describes it.
struct FoundDevice {
  std::string name;  // with the compute capability of a GPU: "NVIDIA H200 (sm_90)"
  int64_t memory_bytes = 0;
};

// ReadBackend reads what `weft-worker --probe=devices` printed. Internal if it is no such JSON.
struct FoundBackend {
  std::string versions;  // of its libraries
  std::vector<FoundDevice> devices;
  std::vector<std::string> notes = {};  // what in the environment is not taken, or costs speed
};
absl::StatusOr<FoundBackend> ReadBackend(const std::string& json);

struct Examination {
  std::vector<Finding> findings;
  // A backend that cannot be used is nullopt.
  std::optional<FoundBackend> cpu;
  std::optional<FoundBackend> cuda;
  bool sound() const;  // nothing is broken
};

// `own`: VersionText of this program; `others`: program and what its --version printed.
Finding JudgePrograms(
    const std::string& own,
    const std::vector<std::pair<std::string, absl::StatusOr<std::string>>>& others);

// This machine is of no use without its NeededBackends: what else is wrong with one is a note.
struct InstalledBackends {
  bool cpu = false;   // libweft_cpu.so lies beside weft
  bool cuda = false;  // libweft_cuda.so
};
struct NeededBackends {
  bool cpu = false;
  bool cuda = false;
};
// has_gpu: the kernel has an NVIDIA device. trains_on_gpus: the cuda backend has found one.
// A GPU host's bundle has no cpu backend, and needs none.
NeededBackends BackendsNeeded(const InstalledBackends& installed, bool has_gpu,
                              bool trains_on_gpus);

Finding JudgeBackend(absl::string_view name, const absl::StatusOr<FoundBackend>& backend,
                     bool needed);

// Instruction sets that count, of the text of /proc/cpuinfo: "avx2, avx512f, amx_bf16".
std::string CpuFeatures(const std::string& cpuinfo);
Finding JudgeCpu(const std::string& cpuinfo);
Finding JudgeCores(int cores, std::optional<double> load);
// Judges a folder of shared memory of that size; nullopt: there is none.
Finding JudgeSharedMemory(std::optional<int64_t> total_bytes, int64_t free_bytes, int cores);
Finding JudgeLeftovers(const std::vector<std::string>& folders);

// `stop`: Ctrl-C. Cancelled then, otherwise OK whatever is found.
absl::StatusOr<Examination> Examine(const std::atomic<bool>* stop);

}  // namespace weft
