// weft hosts, drain, undrain: the hosts that standing agents offer to a weftd.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/commands/service_options.h"
#include "launcher/service/host_view.h"
#include "launcher/service/message_json.h"
#include "plan/errors.h"
#include "process/clock.h"

namespace weft {
namespace {

struct HostVerbArguments {
  ServiceWords words;
  std::string host;
  std::string reason;
  bool move = false;
  bool json = false;
};

absl::StatusOr<v1::HostsReply> Answer(const ServiceWords& words) {
  ASSIGN_OR_RETURN(const auto client, OpenService(words));
  return client->Hosts();
}

int Hosts(const HostVerbArguments& arguments) {
  const absl::StatusOr<v1::HostsReply> reply = Answer(arguments.words);
  if (!reply.ok()) return FailCall(reply.status());
  std::vector<v1::Host> hosts(reply->hosts().begin(), reply->hosts().end());
  if (arguments.json) {
    std::vector<std::string> elements;
    for (const v1::Host& host : hosts) elements.push_back(MessageJson(host));
    std::cout << ArrayJson(elements);
  } else if (hosts.empty()) {
    std::cout << "no host is offered; weft agent --standing offers one\n";
  } else {
    std::cout << HostsTable(hosts, UnixTimeMs(), TableWidth());
  }
  return kExitOk;
}

absl::StatusOr<v1::Host> Change(const HostVerbArguments& arguments, bool drains) {
  ASSIGN_OR_RETURN(const auto client, OpenService(arguments.words));
  if (drains) {
    v1::DrainHostRequest request;
    request.set_host(arguments.host);
    request.set_reason(arguments.reason);
    request.set_move(arguments.move);
    return client->DrainHost(request);
  }
  v1::UndrainHostRequest request;
  request.set_host(arguments.host);
  return client->UndrainHost(request);
}

void AddChange(CLI::App& app, bool drains, int* exit_code) {
  const auto arguments = std::make_shared<HostVerbArguments>();
  CLI::App* verb = drains ? app.add_subcommand(
                                "drain", "place no job on a host any more; what runs there goes on")
                          : app.add_subcommand("undrain", "place jobs on a host again");
  verb->add_option("host", arguments->host, "its name, as weft hosts lists it, or its machine")
      ->required();
  if (drains) {
    verb->add_option("--reason", arguments->reason, "for people");
    verb->add_flag("--move", arguments->move,
                   "ask away the jobs that run there: they save, and go on elsewhere");
  }
  AddJsonOption(*verb, &arguments->json);
  AddServiceOptions(*verb, &arguments->words);
  verb->callback([arguments, drains, exit_code] {
    const absl::StatusOr<v1::Host> host = Change(*arguments, drains);
    *exit_code = host.ok() ? PrintAnswer(arguments->json, *host, HostLine(*host, UnixTimeMs()))
                           : FailCall(host.status());
  });
}

}  // namespace

void AddHostVerbs(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<HostVerbArguments>();
  CLI::App* hosts = app.add_subcommand("hosts", "list the hosts that a weftd has for jobs");
  AddJsonOption(*hosts, &arguments->json);
  AddServiceOptions(*hosts, &arguments->words);
  hosts->callback([arguments, exit_code] { *exit_code = Hosts(*arguments); });
  AddChange(app, /*drains=*/true, exit_code);
  AddChange(app, /*drains=*/false, exit_code);
}

}  // namespace weft
