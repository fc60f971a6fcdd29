// weft agent: starts, watches and ends the ranks of this host, as the coordinator orders. Started
// by weft run, whose end it does not outlive; it serves generation after generation until then.
#include <iostream>
#include <memory>

#include "launcher/agent/agent_run.h"
#include "launcher/commands/commands.h"

namespace weft {

void AddAgent(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<AgentOptions>();
  CLI::App* agent =
      app.add_subcommand("agent", "start and watch this host's ranks; weft run starts it");
  agent->footer(
      "TERM, INT, USR1 and USR2 ask the coordinator to save and stop; no rank is killed for them.");
  agent->add_option("--coordinator", options->coordinator, "unix:<path of weftd's socket>")
      ->required();
  agent->add_option("--run-id", options->run_id, "names the run's processes and temporary files")
      ->required();
  agent->add_option("--name", options->name, "this host's name; unset: the kernel's name for it");
  agent->add_flag("--leave-with-stdin", options->leaves_with_stdin,
                  "end everything when standard input ends");
  // Whoever starts it reads its exit code and its last line, as people do of the other verbs.
  agent->callback([options, exit_code] {
    const absl::Status status = RunAgent(*options);
    *exit_code = status.ok() ? kExitOk : Fail(status);
  });
}

}  // namespace weft
