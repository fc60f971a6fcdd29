#include "launcher/agent/binding.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/agent/host_report.h"

namespace weft {
namespace {

std::string LineIn(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<int> Ascending(const std::vector<UsableCpu>& cpus) {
  std::vector<int> numbers;
  for (const UsableCpu& cpu : cpus) numbers.push_back(cpu.number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<UsableCpu> InNode(const std::vector<UsableCpu>& cpus, int node) {
  std::vector<UsableCpu> inside;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(inside),
               [&](const UsableCpu& cpu) { return cpu.node == node; });
  return inside;
}

// Part `index` of `parts` equal ones.
std::vector<UsableCpu> Part(const std::vector<UsableCpu>& cpus, size_t index, size_t parts) {
  const auto begin = static_cast<std::ptrdiff_t>(index * cpus.size() / parts);
  const auto end = static_cast<std::ptrdiff_t>((index + 1) * cpus.size() / parts);
  return {cpus.begin() + begin, cpus.begin() + end};
}

// The node that most of them are in; the first of equals. REQUIRES: there are any.
int MainNode(const std::vector<UsableCpu>& cpus) {
  std::map<int, int> count;
  for (const UsableCpu& cpu : cpus) ++count[cpu.node];
  return std::max_element(count.begin(), count.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

class Binder {
 public:
  explicit Binder(const BindingQuestion& question) : question_(question), cpus_(question.cpus) {
    std::sort(cpus_.begin(), cpus_.end(), [](const UsableCpu& a, const UsableCpu& b) {
      return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
    });
    several_nodes_ = !cpus_.empty() && cpus_.front().node != cpus_.back().node;
  }

  Binding Bind() const {
    Binding binding;
    for (const int slot : question_.slots) binding.places.push_back({.slot = slot});
    binding.words = WhyNot();
    if (!binding.words.empty()) return binding;
    std::vector<std::string> words;
    for (RankPlace& place : binding.places) {
      question_.gpu_nodes.empty() ? PlaceOnCpus(place) : PlaceOnGpu(place);
      if (place.cpus.empty()) continue;
      words.push_back(
          absl::StrCat("slot ", place.slot, " to CPUs ", CpuListText(place.cpus),
                       place.memory_node >= 0 ? absl::StrCat(", node ", place.memory_node) : ""));
    }
    binding.words = words.empty() ? "not bound: no slot has CPUs of its own to spare"
                                  : absl::StrCat("bound: ", absl::StrJoin(words, "; "));
    return binding;
  }

 private:
  size_t Shares() const {
    int shares = std::max(question_.all_slots, static_cast<int>(question_.slots.size()));
    for (const int slot : question_.slots) shares = std::max(shares, slot + 1);
    return static_cast<size_t>(shares);
  }

  std::string WhyNot() const {
    if (cpus_.empty()) return "not bound: the kernel does not say which CPUs there are";
    const size_t ranks = question_.gpu_nodes.empty() ? Shares() : question_.slots.size();
    size_t usable = cpus_.size();
    if (question_.usable_cores > 0) {
      usable = std::min(usable, static_cast<size_t>(question_.usable_cores));
    }
    if (ranks * static_cast<size_t>(question_.threads) <= usable) return "";
    return absl::StrCat("not bound: ", ranks, " slots of ", question_.threads,
                        question_.threads == 1 ? " thread" : " threads", " on ", usable,
                        usable == 1 ? " CPU" : " CPUs");
  }

  bool IsEnough(const std::vector<UsableCpu>& share) const {
    return share.size() > static_cast<size_t>(question_.threads);
  }

  void PlaceOnCpus(RankPlace& place) const {
    const std::vector<UsableCpu> share = Part(cpus_, static_cast<size_t>(place.slot), Shares());
    const int node = MainNode(share);
    const std::vector<UsableCpu> near = InNode(share, node);
    if (IsEnough(near)) return Set(place, near, node);
    if (IsEnough(share)) return Set(place, share, -1);
    if (several_nodes_) Set(place, InNode(cpus_, node), node);
  }

  // All GPUs of the node have a part, whether or not they take ranks of this job.
  void PlaceOnGpu(RankPlace& place) const {
    const auto slot = static_cast<size_t>(place.slot);
    const std::vector<int>& nodes = question_.gpu_nodes;
    if (slot >= nodes.size()) return;
    const std::vector<UsableCpu> near = several_nodes_ ? InNode(cpus_, nodes[slot]) : cpus_;
    if (near.empty()) return;  // not known, or not ours
    size_t index = 0;
    size_t parts = 0;
    for (size_t gpu = 0; gpu < nodes.size(); ++gpu) {
      if (several_nodes_ && nodes[gpu] != nodes[slot]) continue;
      if (gpu == slot) index = parts;
      ++parts;
    }
    const std::vector<UsableCpu> share = Part(near, index, parts);
    if (IsEnough(share)) return Set(place, share, near.front().node);
    if (several_nodes_) Set(place, near, near.front().node);
  }

  // Where there is one node, there is no choice of memory.
  void Set(RankPlace& place, const std::vector<UsableCpu>& cpus, int node) const {
    place.cpus = Ascending(cpus);
    place.memory_node = several_nodes_ ? node : -1;
  }

  const BindingQuestion& question_;
  std::vector<UsableCpu> cpus_;  // neighbours together
  bool several_nodes_ = false;
};

}  // namespace

Binding BindRanks(const BindingQuestion& question) {
  return Binder(question).Bind();
}

std::vector<UsableCpu> DescribeCpusBelow(const std::string& root, const std::vector<int>& allowed) {
  proto::Host host;
  DescribeTopologyBelow(root, &host);
  std::map<int, int> node_of;
  for (const proto::NumaNode& node : host.numa_nodes()) {
    for (const int cpu : node.cpus()) node_of[cpu] = node.number();
  }
  std::vector<UsableCpu> cpus;
  for (const int number : allowed) {
    const std::vector<int> siblings = CpusIn(LineIn(absl::StrCat(
        root, "/sys/devices/system/cpu/cpu", number, "/topology/thread_siblings_list")));
    const auto node = node_of.find(number);
    cpus.push_back({.number = number,
                    .core = siblings.empty() ? number : siblings.front(),
                    .node = node == node_of.end() ? 0 : node->second});
  }
  return cpus;
}

std::vector<UsableCpu> UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};  // more CPUs than the set holds
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) allowed.push_back(cpu);
  }
  return DescribeCpusBelow("", allowed);
}

}  // namespace weft
