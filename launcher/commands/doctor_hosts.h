// weft doctor --hosts: brings up an agent on each host as weft run does, has all of them check
// themselves and each other as before a job, and, if all is well, lets all hosts train a tiny job
// together for one step.
#pragma once
#include <string>
#include <vector>

#include "launcher/hosts/host_list.h"

namespace weft {

struct DoctorHosts {
  std::vector<ListedHost> hosts;
  std::string network;          // cluster.network; empty: any
  std::string ssh_options;      // cluster.ssh_options
  std::string remote_path;      // cluster.remote_path
  std::string cluster = "cpu";  // profile of the hosts
  std::string folder = ".";     // that all hosts share; a folder is made in it and removed again
  bool json = false;
};

// Prints the table; returns the exit code.
int RunDoctorHosts(const DoctorHosts& doctor);

}  // namespace weft
