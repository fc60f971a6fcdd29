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
#include "launcher/job_file/job_yaml.h"

namespace weft {

struct HostArguments {
  HostWords words;
  std::vector<std::string> variables;  // -x
};

// Adds --hosts, --hostfile, --include and --exclude.
void AddHostNames(CLI::App& app, HostWords* words);
// Adds -x as well.
void AddHostOptions(CLI::App& app, HostArguments* arguments);

// " --hosts a,b -x NAME", as a shell reads it; empty: nobody has named any.
std::string OptionsText(const HostArguments& arguments);

// The hosts that are meant; none if nobody has named one. InvalidArgument, one line a mistake.
absl::StatusOr<std::vector<ListedHost>> HostsOf(HostWords words);

// A job that does not say how many hosts and slots there are gets those that are named.
void TakeNamedHosts(const std::vector<ListedHost>& hosts, JobFileOptions* options);

// The variables of -x: "NAME" is passed on as it is here, "NAME=VALUE" is set. InvalidArgument
// where a NAME is not set here.
absl::StatusOr<std::map<std::string, std::string>> VariablesOf(const HostArguments& arguments);

}  // namespace weft
