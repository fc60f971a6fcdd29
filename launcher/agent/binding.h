// Each rank of a host is bound to CPUs and memory here. A rank on a GPU is near that, and
// shares the CPUs of its NUMA node with the other GPUs there; on CPUs the host's slots are equal
// shares of its CPUs, neighbours in a core and in a node together. So two jobs that have different
// slots of a host do not meet. A rank has more threads than it computes with, so it is bound to
// CPUs of its own only where there is one more of them, and else to its node. Pure, but for the
// reading.
#pragma once
#include <string>
#include <vector>

#include "process/rank_place.h"

namespace weft {

struct UsableCpu {
  int number = 0;
  int core = 0;  // the lowest number of the CPUs that are one core
  int node = 0;  // of memory
  friend bool operator==(const UsableCpu&, const UsableCpu&) = default;
};

struct BindingQuestion {
  std::vector<int> slots = {};       // of the ranks, in their order
  int all_slots = 0;                 // of the host, whether or not they take ranks of this job
  int threads = 1;                   // that a rank computes with
  int usable_cores = 0;              // as many CPUs may be busy at a time; 0: all
  std::vector<UsableCpu> cpus = {};  // in any order; none: they are not known
  std::vector<int> gpu_nodes = {};   // by slot, -1: not known; empty: ranks compute on CPUs
};

struct Binding {
  std::vector<RankPlace> places;  // of the ranks, in their order
  std::string words;              // for the log: who is where, or why nobody is bound
};

Binding BindRanks(const BindingQuestion& question);

// The CPUs that this process may run on, as files below `root` describe them; `allowed` are their
// numbers.
std::vector<UsableCpu> DescribeCpusBelow(const std::string& root, const std::vector<int>& allowed);
std::vector<UsableCpu> UsableCpus();

}  // namespace weft
