// weft: the command line. A table of contents; each verb is a file of launcher/commands.
#include <iostream>
#include <new>
#include <string>

#include "launcher/commands/commands.h"
#include "launcher/commands/standard_streams.h"
#include "launcher/machine/carried_mpi.h"
#include "process/last_words.h"
#include "process/signals.h"
#include "process/version.h"

int main(int argc, char** argv) {
  weft::HoldStandardStreams();
  weft::HoldFileSizeSignal();
  weft::HoldLastWords();
  weft::PreferCarriedMpi();
  CLI::App app{"weft trains transformer language models from one YAML file", "weft"};
  int exit_code = weft::kExitOk;
  app.require_subcommand(1);
  app.set_version_flag("--version", weft::VersionText());
  weft::AddPlan(app, &exit_code);
  weft::AddRun(app, argc > 0 ? argv[0] : "weft", &exit_code);
  weft::AddCalibrate(app, argc > 0 ? argv[0] : "weft", &exit_code);
  weft::AddDoctor(app, &exit_code);
  weft::AddData(app, &exit_code);
  weft::AddEval(app, &exit_code);
  weft::AddGenerate(app, &exit_code);
  weft::AddExport(app, &exit_code);
  weft::AddAttach(app, &exit_code);
  weft::AddStatus(app, &exit_code);
  weft::AddWhyStopped(app, &exit_code);
  weft::AddStop(app, &exit_code);
  weft::AddSubmit(app, argc > 0 ? argv[0] : "weft", &exit_code);
  weft::AddPs(app, &exit_code);
  weft::AddWatch(app, &exit_code);
  weft::AddEvents(app, &exit_code);
  weft::AddLogs(app, &exit_code);
  weft::AddJobChanges(app, &exit_code);
  weft::AddHostVerbs(app, &exit_code);
  weft::AddAgent(app, &exit_code);
  weft::AddKeys(app, &exit_code);
  weft::AddCompletion(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    exit_code = app.exit(done);
  } catch (const CLI::ParseError& error) {
    return weft::FailUsage(app, argc > 1 ? argv[1] : "", error.what());
  } catch (const std::bad_alloc&) {
    const std::string limits = weft::LimitsOnProcesses();
    std::cerr << "weft: out of memory; free some"
              << (limits.empty() ? "" : ", or raise what limits it: ") << limits << "\n";
    return weft::kExitNothingFits;
  }
  return weft::FlushAnswer(exit_code);
}
