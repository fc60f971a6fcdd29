// The verbs of the command line, one file each. Each adds its subcommand to `app` and, when it was
// the one typed, leaves the exit code in *exit_code. Only these files speak to people:
// "weft: <message>" on stderr.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"

namespace weft {

// A shell sees these exit codes. README lists them; nothing else is ever returned.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;  // bad spec, usage or contradiction
inline constexpr int kExitNothingFits = 3;
inline constexpr int kExitTryAgain = 75;  // the only one that may requeue
inline constexpr int kExitInterrupted = 130;

void AddPlan(CLI::App& app, int* exit_code);
// `program`: how this command was called, for hints.
void AddRun(CLI::App& app, const std::string& program, int* exit_code);
void AddSubmit(CLI::App& app, const std::string& program, int* exit_code);
void AddPs(CLI::App& app, int* exit_code);
void AddWatch(CLI::App& app, int* exit_code);
void AddEvents(CLI::App& app, int* exit_code);
void AddLogs(CLI::App& app, int* exit_code);
// checkpoint, pause, resume, resize
void AddJobChanges(CLI::App& app, int* exit_code);
// hosts, drain, undrain
void AddHostVerbs(CLI::App& app, int* exit_code);
void AddCalibrate(CLI::App& app, const std::string& program, int* exit_code);
void AddDoctor(CLI::App& app, int* exit_code);
// data prepare, data cache
void AddData(CLI::App& app, int* exit_code);
void AddDataCache(CLI::App& data, int* exit_code);
void AddEval(CLI::App& app, int* exit_code);
void AddGenerate(CLI::App& app, int* exit_code);
void AddExport(CLI::App& app, int* exit_code);
void AddAttach(CLI::App& app, int* exit_code);
void AddStatus(CLI::App& app, int* exit_code);
void AddWhyStopped(CLI::App& app, int* exit_code);
void AddStop(CLI::App& app, int* exit_code);
void AddAgent(CLI::App& app, int* exit_code);
void AddKeys(CLI::App& app, int* exit_code);
void AddCompletion(CLI::App& app, int* exit_code);

// InvalidArgument 2, FailedPrecondition 3, Unavailable 75, everything else 1.
int ExitCodeOf(const absl::Status& status);
// Prints "weft: <message>"; returns ExitCodeOf(status).
int Fail(const absl::Status& status);
// A command line that cannot be read; `first_word`: what stands where a verb should, may be empty.
int FailUsage(const CLI::App& app, absl::string_view first_word, const std::string& error);
// The issues of a job file: one per line, as they are (editors jump to file:line), then a summary.
int FailJobFile(const absl::Status& status);

}  // namespace weft
