// Nodes of a partition, as `scontrol show node --oneliner` and `scontrol show partition --oneliner`
// print them, are held against what a job asks of them. Texts and values in, values out. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

struct SlurmNode {
  std::string name;
  int cpus = 0;            // that jobs may have
  int64_t memory_mib = 0;  // the same
  int gpus = 0;
  std::string gpu_type = {};  // "h100"; empty: Slurm names none, or several
  std::vector<std::string> partitions = {};
  friend bool operator==(const SlurmNode&, const SlurmNode&) = default;
};

struct SlurmPartition {
  std::string name;
  bool is_default = false;
  int nodes = 0;
  friend bool operator==(const SlurmPartition&, const SlurmPartition&) = default;
};

// Lines that are of no node, or of no partition, are passed over.
std::vector<SlurmNode> ParseSlurmNodes(absl::string_view text);
std::vector<SlurmPartition> ParseSlurmPartitions(absl::string_view text);

// Returns a note for people; empty: there is none. InvalidArgument with the key to change if fewer
// nodes of the job's partition are as the job needs them than it needs. Says nothing where Slurm
// does not say enough: the partition is not there, several are named, cluster.sbatch_options may
// name another, or nodes of it are not shown (of a cloud).
absl::StatusOr<std::string> CheckNodesOfPartition(const JobSpec& job, const Plan& plan,
                                                  const std::vector<SlurmPartition>& partitions,
                                                  const std::vector<SlurmNode>& nodes);

}  // namespace weft
