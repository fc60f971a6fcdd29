// An agent finds this out about its host before ranks may start there. The Judge functions are
// pure; the others ask the kernel and the file systems, and a file system that hangs holds them up:
// they run on a thread of their own (host_checker.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/spec/job_spec.h"
#include "proto/agent.pb.h"

namespace weft {

proto::CheckResult JudgeDevices(BackendKind backend, int ranks, int cores, int gpus);

// `skew_ms`: this host's clock less the coordinator's. No lease and no deadline goes by it, but
// logs of several hosts are read side by side; and half of what certificates allow for is too much.
inline constexpr int64_t kNotedSkewMs = 5000;
proto::CheckResult JudgeClock(int64_t skew_ms);

// The plan's memory, which the ranks touch before their first step.
proto::CheckResult JudgeRankMemory(std::optional<int64_t> available_bytes, int ranks,
                                   int64_t rank_bytes);

// `gpu`: of those that ranks get the one with the least free memory; null: not known.
// `profile_bytes`: what the job's cluster profile says of each.
proto::CheckResult JudgeGpuMemory(const proto::Gpu* gpu, int64_t rank_bytes, int64_t profile_bytes);

// Without that room a host's ranks exchange data through /tmp: alone that is only slow, among
// several hosts all wait for it. nullopt: there is no such folder, or it cannot be written.
proto::CheckResult JudgeRankSharedMemory(std::optional<int64_t> free_bytes, int ranks,
                                         bool is_alone);

// `found`: LookForMpirun's, which the ranks of a job on CPUs are started by.
proto::CheckResult JudgeMpi(const absl::StatusOr<std::string>& found);

// `addresses`: of this host. Among several hosts it needs one in the network (empty: any).
proto::CheckResult JudgeNetwork(const std::string& network,
                                const std::vector<std::string>& addresses);
// The address that the others are to dial; empty: there is none.
std::string AddressIn(const std::string& network, const std::vector<std::string>& addresses);

// `expected`, `found`: "path size:hash" each, of the same files in the same order; a file that
// cannot be read is found as "path: why".
proto::CheckResult JudgeData(const std::vector<std::string>& expected,
                             const std::vector<std::string>& found);
std::vector<std::string> DataFound(const JobSpec& job);

// A folder that all hosts share, for checkpoints or for the run: it is there, it is the very folder
// that the coordinator has written its token to, and a checkpoint has room. `key` is its own in
// job.yaml. No token: it is not compared.
struct SharedFolder {
  std::string name;  // "run folder"
  std::string path;
  std::string key;
  int64_t needed_bytes = 0;
  std::string run_folder = {};  // that it lies in, perhaps; as folder_token.h has it
};
proto::CheckResult CheckSharedFolder(const SharedFolder& folder, const std::string& token);

// All of this that `order` asks for, by this host's own means. `is_coordinators`: the agent runs on
// the coordinator's host, whose clock, files and memory the launcher has looked at. `slots`: which
// of the host's ranks get (UsedSlots).
std::vector<proto::CheckResult> RunHostChecks(const proto::CheckHost& order, const JobSpec& job,
                                              int64_t skew_ms, bool is_coordinators,
                                              absl::Span<const int> slots);

}  // namespace weft
