// The hosts of the PBS, LSF or Flux job that this process is in, as variables and files say that
// these set. Slurm, which is asked for more, has a room of its own. Pure, but for what it is given
// to read by.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

struct BatchHosts {
  std::string system;  // "PBS", "LSF", "Flux"
  std::string job_id;
  std::vector<std::string> hosts;  // each once, in the order in which they are written
  std::vector<int> flux_ranks;     // of each host's broker; empty: it is no job of Flux'
};

struct BatchWorld {
  std::function<const char*(const char*)> variable;  // null: it is not set
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  // The output of `flux resource R`.
  std::function<absl::StatusOr<std::string>()> flux_resources;
};

// nullopt: this is in no such job. InvalidArgument, naming the variable, if what it says cannot be
// read.
absl::StatusOr<std::optional<BatchHosts>> FindBatchHosts(const BatchWorld& world);

// A name a line, as often as the host has slots: PBS_NODEFILE.
absl::StatusOr<std::vector<std::string>> ParseHostLines(absl::string_view text);
// "a 4 b 8": LSB_MCPU_HOSTS.
absl::StatusOr<std::vector<std::string>> ParseHostCounts(absl::string_view text);
// A resource set in Flux' RFC 20, version 1. Fills hosts and flux_ranks alone.
absl::StatusOr<BatchHosts> ParseResourceSet(absl::string_view json);

}  // namespace weft
