// weft doctor: what this machine can do for weft, what it cannot, and what to do about that; or
// several hosts (doctor_hosts.h).
#include "launcher/machine/doctor.h"

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/doctor_hosts.h"
#include "launcher/commands/host_options.h"
#include "launcher/machine/open_mpi.h"
#include "process/signals.h"
#include "process/version.h"

namespace weft {
namespace {

void PrintTable(const Examination& examination) {
  std::cout << VersionText() << "\n";
  for (const Finding& finding : examination.findings) {
    std::cout << absl::StrFormat("  %-6s  %-12s  %s\n", WordOf(finding.health), finding.subject,
                                 finding.found);
    if (!finding.cure.empty()) std::cout << absl::StrFormat("%24s%s\n", "", finding.cure);
  }
  if (!examination.sound()) return;
  const size_t gpus = examination.cuda ? examination.cuda->devices.size() : 0;
  std::cout << "well: weft can train here on "
            << (gpus > 0 ? absl::StrCat(gpus, gpus == 1 ? " GPU" : " GPUs") : "")
            << (gpus > 0 && examination.cpu ? " and on " : "") << (examination.cpu ? "CPUs" : "")
            << "\n";
}

nlohmann::ordered_json DevicesJson(const std::optional<FoundBackend>& backend) {
  if (!backend) return nullptr;
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const FoundDevice& device : backend->devices) {
    devices.push_back({{"name", device.name}, {"memory_bytes", device.memory_bytes}});
  }
  return {{"versions", backend->versions}, {"devices", devices}};
}

void PrintJson(const Examination& examination) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& finding : examination.findings) {
    findings.push_back({{"subject", finding.subject},
                        {"health", std::string(WordOf(finding.health))},
                        {"found", finding.found},
                        {"cure", finding.cure}});
  }
  const nlohmann::ordered_json json = {
      {"weft", Version()},
      {"sound", examination.sound()},
      {"findings", findings},
      {"backends",
       {{"cpu", DevicesJson(examination.cpu)}, {"cuda", DevicesJson(examination.cuda)}}}};
  // Texts that programs print need not be UTF-8.
  std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

int Doctor(bool json) {
  std::atomic<bool> stop{false};
  const SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&stop](int) { stop = true; });
  const absl::StatusOr<Examination> examination = Examine(&stop);
  if (!examination.ok()) return kExitInterrupted;
  if (json) {
    PrintJson(*examination);
  } else {
    PrintTable(*examination);
  }
  if (examination->sound()) return kExitOk;
  return Fail(absl::InternalError("this machine is not ready: see what is broken above"));
}

// DoctorArguments is a command line; one with hosts is about them.
struct DoctorArguments {
  bool json = false;
  HostArguments words;
  DoctorHosts hosts;
};

int DoctorOf(DoctorArguments& arguments) {
  absl::StatusOr<std::vector<ListedHost>> hosts = HostsOf(arguments.words.words);
  if (!hosts.ok()) return Fail(hosts.status());
  if (hosts->empty()) return Doctor(arguments.json);
  arguments.hosts.hosts = *std::move(hosts);
  arguments.hosts.json = arguments.json;
  return RunDoctorHosts(arguments.hosts);
}

}  // namespace

void AddDoctor(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<DoctorArguments>();
  DoctorHosts& hosts = arguments->hosts;
  CLI::App* doctor =
      app.add_subcommand("doctor", "what this machine, or --hosts, can do, and what is broken");
  doctor->add_flag("--json", arguments->json, "one JSON object instead of text");
  AddHostOptions(*doctor, &arguments->words);
  doctor->add_option("--network", hosts.network, "subnet of the hosts, as cluster.network");
  doctor->add_option("--ssh-options", hosts.ssh_options, "as cluster.ssh_options");
  doctor->add_option("--remote-path", hosts.remote_path, "as cluster.remote_path");
  doctor->add_option("--cluster", hosts.cluster, "profile of the hosts")->default_str("cpu");
  doctor->add_option("--folder", hosts.folder, "that all hosts share: a run is tried in it")
      ->default_str(".");
  doctor->callback([arguments, exit_code] {
    ForgetOuterMpirun();
    *exit_code = DoctorOf(*arguments);
  });
}

}  // namespace weft
