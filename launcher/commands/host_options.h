// The options by which a person names the hosts of a run, and what the environment of its agents
// has beside ssh's.
#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/hosts/host_list.h"

namespace weft {

struct HostArguments {
  HostWords words;
  std::vector<std::string> variables;  // -x
};

// Adds --hosts, --hostfile, --include, --exclude and -x.
void AddHostOptions(CLI::App& app, HostArguments* arguments);

// The hosts that are meant; none if nobody has named one. InvalidArgument, one line a mistake.
absl::StatusOr<std::vector<ListedHost>> HostsOf(const HostArguments& arguments);

// The variables of -x: "NAME" is passed on as it is here, "NAME=VALUE" is set. InvalidArgument
// where a NAME is not set here.
absl::StatusOr<std::map<std::string, std::string>> VariablesOf(const HostArguments& arguments);

}  // namespace weft
