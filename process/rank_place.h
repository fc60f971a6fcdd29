// The place of a rank on its host: its slot, and the CPUs and the memory that are near. The agent
// decides; whoever forks the worker, the agent itself or a shim, puts it there. Standard library
// alone, for the shim's sake.
#pragma once
#include <sched.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct RankPlace {
  int slot = 0;
  std::vector<int> cpus = {};  // ascending; none: wherever the agent may run
  int memory_node = -1;        // NUMA node whose memory is preferred; -1: as the kernel likes
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// A shim is told of all ranks of its host, in their order, by this variable: "0:0-3,8:1;2::-1".
inline constexpr char kPlacesVariable[] = "WEFT_PLACES";
std::string PlacesText(const std::vector<RankPlace>& places);
// Nothing if `text` is no PlacesText.
std::optional<std::vector<RankPlace>> ParsePlaces(std::string_view text);

// How many ranks of the host are bound to the same CPUs as the one in `slot`, itself too; 0: it is
// not bound.
int SharersOf(const std::vector<RankPlace>& places, int slot);

// "0-3,8", as the kernel writes it.
std::string CpuListText(const std::vector<int>& cpus);

// PlaceTaker is made before a fork; Take is safe after it.
class PlaceTaker {
 public:
  explicit PlaceTaker(const RankPlace& place);
  // Puts this process there. 0, or the errno of what the kernel refused, as some containers do: it
  // goes on where it is.
  int Take() const;

 private:
  bool binds_ = false;
  int memory_node_ = -1;
  cpu_set_t cpus_ = {};
};

}  // namespace weft
