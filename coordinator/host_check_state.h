// Hosts find this out about themselves before a generation may start on them; values alone: what
// follows from them is in preflight.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

enum class Severity { kWell, kNote, kBroken };

struct HostFinding {
  std::string name;  // "shared memory"
  Severity severity = Severity::kWell;
  std::string found;
  std::string allowed = {};
  std::string cure = {};
  friend bool operator==(const HostFinding&, const HostFinding&) = default;
};

// Another host of the round that did not answer there.
struct UnreachedHost {
  std::string machine;
  std::string host;
  std::string why;
  friend bool operator==(const UnreachedHost&, const UnreachedHost&) = default;
};

// A fact: the host has been checked in that round.
struct HostChecked {
  int64_t round = 0;
  std::string machine;
  std::string host;
  int64_t agent_pid = 0;
  bool pairs_only = false;
  std::vector<HostFinding> findings = {};
  std::vector<UnreachedHost> unreached = {};
  double product_flops_per_s = 0;  // 0: not measured
  friend bool operator==(const HostChecked&, const HostChecked&) = default;
};

// HostCheck stays of it in the job: it holds what is not well. It is the check of that agent;
// another one on the host has to be checked again.
struct HostCheck {
  int64_t round = 0;  // of the whole check
  int64_t agent_pid = 0;
  std::vector<HostFinding> findings = {};  // notes and worse
  std::vector<UnreachedHost> unreached = {};
  int64_t pairs_round = 0;  // that `unreached` is of
  double product_flops_per_s = 0;
  friend bool operator==(const HostCheck&, const HostCheck&) = default;
};

}  // namespace weft
