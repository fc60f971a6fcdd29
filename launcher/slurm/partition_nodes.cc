#include "launcher/slurm/partition_nodes.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/slurm/batch_script.h"
#include "launcher/slurm/gpu_type.h"

namespace weft {
namespace {

using Fields = std::map<std::string, std::string>;

// The first of a name counts: words of people, such as a drained node's Reason, come late.
Fields FieldsOf(absl::string_view line) {
  Fields fields;
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (parts.size() == 2) fields.try_emplace(parts[0], parts[1]);
  }
  return fields;
}

int64_t NumberOf(const Fields& fields, const std::string& name) {
  const auto found = fields.find(name);
  int64_t number = 0;
  return found != fields.end() && absl::SimpleAtoi(found->second, &number) ? number : 0;
}

// "gpu:8", "gpu:a100:4(S:0-1),gpu:h100:2", "(null)". Commas within parentheses part nothing.
void TakeGres(absl::string_view text, SlurmNode* node) {
  std::string plain;
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : 0;
    if (depth == 0) plain += c;
    depth -= c == ')' ? 1 : 0;
  }
  int kinds = 0;
  for (const absl::string_view each : absl::StrSplit(plain, ',', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(each, ':');
    int count = 0;
    if (parts.size() < 2 || parts.front() != "gpu" || !absl::SimpleAtoi(parts.back(), &count)) {
      continue;
    }
    node->gpus += count;
    node->gpu_type = ++kinds == 1 && parts.size() == 3 ? parts[1] : "";
  }
}

// Names no more than a few.
std::string SomeOf(const std::vector<SlurmNode>& nodes) {
  constexpr size_t kMost = 3;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(nodes.size(), kMost); ++i) names.push_back(nodes[i].name);
  return absl::StrCat(absl::StrJoin(names, ", "), nodes.size() > kMost ? ", ..." : "");
}

std::string PartitionsWithGpus(const std::vector<SlurmNode>& nodes) {
  std::vector<std::string> names;
  for (const SlurmNode& node : nodes) {
    if (node.gpus > 0) names.insert(names.end(), node.partitions.begin(), node.partitions.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names.empty() ? "no partition has any" : absl::StrCat("use ", absl::StrJoin(names, ", "));
}

bool NamesNodesItself(absl::string_view options) {
  for (const char* const word : {"-p", "--partition", "-M", "--cluster", "-w", "--nodelist", "-F",
                                 "--nodefile", "-N", "--nodes", "--mincpus", "--mem", "--gpus",
                                 "-G", "--gres", "-c", "-n", "--ntasks", "--cpus"}) {
    for (const absl::string_view each : absl::StrSplit(options, ' ', absl::SkipEmpty())) {
      if (absl::StartsWith(each, word)) return true;
    }
  }
  return false;
}

// One of the things that a job asks of a node.
struct Need {
  std::function<int64_t(const SlurmNode&)> has;
  int64_t asked = 0;
  // Says what is wrong if the most that enough nodes have is `most`; `some` have any at all.
  std::function<std::string(int64_t most, int64_t some)> words;
};

std::vector<Need> GpuNeeds(const JobSpec& job, const std::string& partition,
                           const std::vector<SlurmNode>& all) {
  const int slots = job.cluster.slots_per_node;
  return {
      {[](const SlurmNode& node) { return int64_t{node.gpus}; }, slots,
       [=, where = PartitionsWithGpus(all), name = job.cluster.name](int64_t most, int64_t some) {
         if (most > 0) {
           return absl::StrCat("cluster.gpus_per_node: ", slots, " but nodes of partition ",
                               partition, " have ", most,
                               " GPUs; write as many, or name another partition");
         }
         if (some > 0) {
           return absl::StrCat("cluster.nodes: of partition ", partition, " only ", some,
                               some == 1 ? " node has" : " nodes have",
                               " GPUs; write as many, or name another partition");
         }
         return absl::StrCat("cluster.partition: ", partition, " has no nodes with GPUs, but ",
                             "cluster.profile ", name, " is of GPUs; ", where,
                             ", or the profile cpu");
       }}};
}

std::vector<Need> CpuNeeds(const JobSpec& job, const Plan& plan, const std::string& partition) {
  const int slots = job.cluster.slots_per_node, threads = job.threads_per_worker;
  const int64_t memory_mib = NodeMebibytes(job, plan);
  return {{[](const SlurmNode& node) { return int64_t{node.cpus}; }, int64_t{slots} * threads,
           [=](int64_t most, int64_t) {
             return absl::StrCat("cluster.slots: ", slots, " workers of ", threads,
                                 threads == 1 ? " thread" : " threads", " take ", slots * threads,
                                 " CPUs of a node, but nodes of partition ", partition, " have ",
                                 most, "; write ", std::max<int64_t>(most / threads, 1),
                                 " or fewer, or name another partition");
           }},
          {[](const SlurmNode& node) { return node.memory_mib; }, memory_mib,
           [=](int64_t most, int64_t) {
             return absl::StrCat("cluster.slots: ", slots, " workers take ", memory_mib,
                                 " MiB of a node, but nodes of partition ", partition, " have ",
                                 most, " MiB; write fewer, with more cluster.nodes");
           }}};
}

// `nodes`: those that have what is asked of them otherwise. Where Slurm names no type, or several,
// it may be the right one. A type that says nothing is used, but said.
absl::StatusOr<std::string> CheckType(const JobSpec& job, int least, const std::string& partition,
                                      const std::vector<SlurmNode>& nodes) {
  const std::string& device = job.cluster.device.name;
  int fit = 0;
  std::string other, unknown;  // a type of each
  for (const SlurmNode& node : nodes) {
    const GpuMatch match =
        node.gpu_type.empty() ? GpuMatch::kSame : MatchGpu(node.gpu_type, device);
    if (match == GpuMatch::kSame) ++fit;
    if (match == GpuMatch::kOther) other = other.empty() ? node.gpu_type : other;
    if (match == GpuMatch::kUnknown) unknown = unknown.empty() ? node.gpu_type : unknown;
  }
  if (fit >= least) return "";
  const std::string there = absl::StrCat("nodes of partition ", partition, " have ");
  if (unknown.empty() && !other.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.profile: ", job.cluster.name, " is of ", device, " but ", there, other,
        "; name the profile of those GPUs (docs/clusters.md), or another partition"));
  }
  if (unknown.empty()) return "";
  return absl::StrCat(there, "GPUs of type ", unknown, ", which does not say whether they are ",
                      device, " of cluster.profile ", job.cluster.name);
}

}  // namespace

std::vector<SlurmNode> ParseSlurmNodes(absl::string_view text) {
  std::vector<SlurmNode> nodes;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const Fields fields = FieldsOf(line);
    const auto name = fields.find("NodeName");
    if (name == fields.end()) continue;
    SlurmNode node{.name = name->second};
    // Newer releases alone count what is kept for the system.
    const int64_t effective = NumberOf(fields, "CPUEfctv");
    node.cpus = static_cast<int>(effective > 0 ? effective : NumberOf(fields, "CPUTot"));
    node.memory_mib = NumberOf(fields, "RealMemory") - NumberOf(fields, "MemSpecLimit");
    if (const auto gres = fields.find("Gres"); gres != fields.end()) TakeGres(gres->second, &node);
    if (const auto found = fields.find("Partitions"); found != fields.end()) {
      node.partitions = absl::StrSplit(found->second, ',', absl::SkipEmpty());
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<SlurmPartition> ParseSlurmPartitions(absl::string_view text) {
  std::vector<SlurmPartition> partitions;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const Fields fields = FieldsOf(line);
    const auto name = fields.find("PartitionName");
    if (name == fields.end()) continue;
    const auto is_default = fields.find("Default");
    partitions.push_back({.name = name->second,
                          .is_default = is_default != fields.end() && is_default->second == "YES",
                          .nodes = static_cast<int>(NumberOf(fields, "TotalNodes"))});
  }
  return partitions;
}

absl::StatusOr<std::string> CheckNodesOfPartition(const JobSpec& job, const Plan& plan,
                                                  const std::vector<SlurmPartition>& partitions,
                                                  const std::vector<SlurmNode>& nodes) {
  const SchedulerSpec& site = job.scheduler;
  if (NamesNodesItself(site.options)) return "";
  const auto partition =
      std::find_if(partitions.begin(), partitions.end(), [&](const SlurmPartition& each) {
        return site.partition.empty() ? each.is_default : each.name == site.partition;
      });
  if (partition == partitions.end()) return "";
  std::vector<SlurmNode> left;
  for (const SlurmNode& node : nodes) {
    const auto& of = node.partitions;
    if (std::find(of.begin(), of.end(), partition->name) != of.end()) left.push_back(node);
  }
  if (left.empty() || std::ssize(left) < partition->nodes) return "";
  const int most_nodes = job.cluster.nodes + job.hosts.spares;
  const int least = job.hosts.least_nodes > 0 ? job.hosts.least_nodes : most_nodes;
  if (std::ssize(left) < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.nodes: ", least, " are needed but partition ", partition->name, " has ",
        left.size(), " (", SomeOf(left), "); write fewer, or name another partition"));
  }
  const bool on_gpus = job.cluster.device.backend == BackendKind::kCuda;
  for (const Need& need :
       on_gpus ? GpuNeeds(job, partition->name, nodes) : CpuNeeds(job, plan, partition->name)) {
    // The `least` best of them come first.
    std::sort(left.begin(), left.end(),
              [&](const SlurmNode& a, const SlurmNode& b) { return need.has(a) > need.has(b); });
    const int64_t most = need.has(left[static_cast<size_t>(least - 1)]);
    const int64_t some = std::count_if(left.begin(), left.end(),
                                       [&](const SlurmNode& node) { return need.has(node) > 0; });
    if (most < need.asked) return absl::InvalidArgumentError(need.words(most, some));
    std::erase_if(left, [&](const SlurmNode& node) { return need.has(node) < need.asked; });
  }
  return on_gpus ? CheckType(job, least, partition->name, left) : absl::StatusOr<std::string>("");
}

}  // namespace weft
