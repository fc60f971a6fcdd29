// weft doctor: what this machine can do for weft, what it cannot, and what to do about that.
#include "launcher/machine/doctor.h"

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/commands.h"
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

}  // namespace

void AddDoctor(CLI::App& app, int* exit_code) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine can do, and what is broken");
  doctor->add_flag("--json", *json, "one JSON object instead of text");
  doctor->callback([json, exit_code] { *exit_code = Doctor(*json); });
}

}  // namespace weft
