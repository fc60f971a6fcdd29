// weft run: trains a job file to its end, here, in the foreground; goes on where it was.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "data/unicode.h"
#include "launcher/batch/flux_exec.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/host_options.h"
#include "launcher/commands/job_preparation.h"
#include "launcher/commands/prepare_progress.h"
#include "launcher/commands/run_checks.h"
#include "launcher/commands/run_in_batch.h"
#include "launcher/commands/run_in_slurm.h"
#include "launcher/hosts/ssh.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/open_mpi.h"
#include "launcher/run/detach.h"
#include "launcher/run/foreground.h"
#include "launcher/run/going_on.h"
#include "launcher/run/ledger.h"
#include "launcher/run/live_output.h"
#include "launcher/run/progress.h"
#include "launcher/run/run_folder.h"
#include "launcher/run/run_metrics.h"
#include "launcher/run/terminal.h"
#include "launcher/slurm/batch_script.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/estimate/goodput.h"
#include "plan/estimate/rank_parts.h"
#include "plan/search/describe.h"
#include "plan/search/space.h"
#include "plan/spec/layout_text.h"
#include "process/clock.h"
#include "process/signals.h"
#include "process/version.h"

namespace weft {
namespace {

struct RunArguments {
  std::string program;  // this command as it was typed: hints can be typed the same way
  std::string path;
  JobFileOptions options;
  bool detach = false;
  std::vector<std::string> accept;  // keys
  HostArguments host_words;
  std::string listen;                              // where agents that others start dial
  std::string tls;                                 // the bundle that is shown there
  std::vector<ListedHost> hosts = {};              // as the words say
  std::vector<ListedHost> left_out = {};           // of the allocation's, by this run
  std::map<std::string, std::string> env = {};     // -x
  std::optional<SlurmAllocation> allocation = {};  // that this is in, if its hosts are meant
  std::optional<BatchHosts> batch = {};            // the same of PBS, LSF or Flux
};

// Who has granted the hosts: "Slurm"; empty: a person has named them, or there are none.
std::string GrantedBy(const RunArguments& arguments) {
  if (arguments.allocation) return "Slurm";
  return arguments.batch ? arguments.batch->system : "";
}

AgentStarter StarterFor(const RunArguments& arguments, const JobSpec& job) {
  if (arguments.allocation) return StarterOf(*arguments.allocation, job.scheduler.container);
  if (arguments.batch && !arguments.batch->flux_ranks.empty()) return FluxStarter(*arguments.batch);
  return SshStarter(job.hosts.ssh_options);
}

// `saved_step` 0: there is no checkpoint.
void PrintFiles(const JobSpec& job, const RunPaths& paths, int64_t saved_step) {
  if (saved_step > 0) {
    std::cout << "  checkpoint  " << CheckpointFolder(job) << "/step-" << saved_step << "\n";
  }
  std::cout << "  metrics     " << paths.metrics() << "\n"
            << "  logs        " << paths.logs() << "\n";
}

// Says what a run that has ended well lacks all the same: lines of metrics that could never be
// written, files that somebody has removed. Returns false if there is any. `last_step` 0: none was
// done.
bool HasAllFiles(const JobSpec& job, const RunPaths& paths, int64_t saved_step, int64_t last_step,
                 int64_t lines_lost) {
  std::vector<std::string> missing = {paths.logs()};
  if (last_step > 0) missing.push_back(paths.metrics());
  if (saved_step > 0) missing.push_back(absl::StrCat(CheckpointFolder(job), "/step-", saved_step));
  std::erase_if(missing, [](const std::string& path) { return std::filesystem::exists(path); });
  for (const std::string& path : missing) {
    std::cerr << "weft: " << Printable(path) << " is not there: it was removed, or could not be "
              << "written\n";
  }
  if (lines_lost > 0 && missing.empty()) {
    std::cerr << "weft: " << Printable(paths.metrics()) << " lacks the lines of " << lines_lost
              << (lines_lost == 1 ? " step" : " steps")
              << ": they could not be written; the checkpoints are whole\n";
  }
  return missing.empty() && lines_lost == 0;
}

// More steps are an ordinary resume, as long as the learning rate keeps its curve. They are asked
// for in tokens or epochs where the job does so: it takes one of the three. `job`: resolved.
void PrintHowToGoOn(const RunArguments& arguments, const JobFile& file, const JobSpec& job,
                    int64_t after_step) {
  std::string given = ShellWord(arguments.path);
  for (const std::string& set : arguments.options.sets) {
    absl::StrAppend(&given, " --set ", ShellWord(set));
  }
  const int64_t steps = after_step + job.training.steps;
  std::cout << "try next:\n  " << arguments.program << " run " << given
            << OptionsText(arguments.host_words);
  if (file.tree.FindPath("training.tokens") != nullptr) {
    std::cout << " --set training.tokens="
              << steps * job.training.global_batch_size * job.training.seq_len;
  } else if (const Value* const epochs = file.tree.FindPath("training.epochs")) {
    const double more = ParseNumber(epochs->scalar).value_or(0) * static_cast<double>(steps) /
                        static_cast<double>(job.training.steps);
    std::cout << " --set training.epochs=" << NumberText(more);
  } else {
    std::cout << " --set training.steps=" << steps;
  }
  if (job.lr_scheduler.decay_steps == job.training.steps) {
    std::cout << " --set lr_scheduler.decay_steps=" << job.training.steps;
  }
  std::cout << "\n  " << arguments.program << " plan " << given << " --explain 20\n";
}

// `job`: resolved.
int Summary(const RunArguments& arguments, const JobFile& file, const JobSpec& job,
            const RunPaths& paths, const RunOutcome& outcome, const Progress& progress,
            int64_t lines_lost, double seconds) {
  const ProgressState& state = progress.state();
  switch (outcome.end) {
    case RunEnd::kCompleted:
      std::cout << "done: step " << job.training.steps << " of " << job.training.steps << " in "
                << DurationText(seconds) << "\n";
      std::cout << "  loss        " << absl::StrFormat("%.4f", state.loss);
      if (state.valid_loss) std::cout << absl::StrFormat(" (validation %.4f)", *state.valid_loss);
      std::cout << "\n";
      if (progress.mean_tokens_per_s() > 0) {
        std::cout << absl::StrFormat("  speed       %.0f tokens/s\n", progress.mean_tokens_per_s());
      }
      PrintFiles(job, paths, outcome.saved_step);
      PrintHowToGoOn(arguments, file, job, outcome.saved_step);
      return HasAllFiles(job, paths, outcome.saved_step, state.step, lines_lost) ? kExitOk
                                                                                 : kExitFailed;
    case RunEnd::kSuspended:
      if (outcome.saved_step > 0) {
        std::cout << "stopped at step " << outcome.saved_step
                  << ", saved; run the same command again to resume\n";
      } else {
        std::cout << "stopped, and nothing is saved; run the same command again to begin\n";
      }
      if (outcome.lost_its_hosts) std::cout << "  why         " << outcome.reason << "\n";
      // "stopped on request, ...; step 37 could not be saved (...)"
      if (const size_t more = outcome.reason.find("; ");
          more != std::string::npos && !outcome.lost_its_hosts) {
        std::cout << "  but         " << outcome.reason.substr(more + 2) << "\n";
      }
      PrintFiles(job, paths, outcome.saved_step);
      if (!HasAllFiles(job, paths, outcome.saved_step, state.step, lines_lost) &&
          !outcome.lost_its_hosts) {
        return kExitFailed;
      }
      return outcome.lost_its_hosts ? kExitTryAgain : kExitOk;
    case RunEnd::kCancelled:
      std::cerr << "weft: stopped at once; the last checkpoint is of step " << outcome.saved_step
                << "; run again to resume from it\n";
      return kExitInterrupted;
    case RunEnd::kCoordinatorLost:
      std::cerr
          << "weft: the coordinator is gone and the workers are stopped; run the same command "
             "again: it resumes from step "
          << outcome.saved_step << outcome.reason << "\n";
      return kExitTryAgain;
    case RunEnd::kFailed:
      break;
  }
  std::cerr << "weft: the job failed: " << ReasonText(outcome.reason, 8) << "\nlogs are in "
            << paths.logs() << "\n";
  return kExitFailed;
}

JobFileOptions OptionsFor(const RunArguments& arguments) {
  JobFileOptions options = arguments.options;
  TakeNamedHosts(arguments.hosts, &options);
  options.on_tokens = ShowPrepareProgress();
  options.token_threads = UsableCores();
  return options;
}

// Records what was predicted beside what was measured, for the next `weft plan` on this hardware.
// A ledger that cannot be written is worth a warning, no more.
void Record(const PreparedJob& prepared, const ProgressState& state, const RunMetrics& metrics) {
  const std::optional<MeasuredSteps> measured = MeasureSteps(metrics);
  if (!measured) return;
  const JobSpec& job = prepared.file.job;
  const Plan& plan = prepared.plan;
  LedgerEntry entry;
  entry.unix_s = absl::ToUnixSeconds(absl::Now());
  entry.hardware = HardwareKey(job.cluster);
  entry.weft = VersionText();
  entry.job = job.name;
  entry.model =
      absl::StrCat(ModelTypeOf(job.model), ", ", ParameterCount(job.model), " parameters");
  entry.layout = LayoutText(plan.layout);
  entry.workers = plan.layout.world_size();
  entry.steps = measured->steps;
  entry.predicted_step_s = plan.time.total_s();
  entry.measured_step_s = measured->median_s;
  for (size_t i = 0; i < kTimeTerms; ++i) {
    const auto term = static_cast<TimeTerm>(i);
    entry.terms_s.emplace_back(WordOf(term), plan.time.of(term));
  }
  // Rank 0, whose clock it was, is on the first stage.
  const PartSeconds parts = RankPartsOf(QuestionOf(job), plan.layout, 0, plan.time);
  for (const auto& [name, measured_s] : measured->parts_s) {
    for (size_t i = 0; i < kStepParts; ++i) {
      const auto part = static_cast<StepPart>(i);
      if (WordOf(part) == name) entry.parts.push_back({name, parts.of(part), measured_s});
    }
  }
  entry.planned_bytes = state.planned_bytes;
  entry.peak_bytes = state.peak_bytes;
  const absl::Status written = AppendToLedger(LedgerPath(), entry);
  if (!written.ok()) std::cerr << "weft: warning: " << written.message() << "\n";
  const std::string difference = DifferenceText(entry);
  if (!difference.empty()) std::cout << difference << "\n";
}

// RunsEnd says what a scheduler wants to know of a run that has ended.
struct RunsEnd {
  std::string run_folder;
  EndedRun run;
};

// How long before an allocation's end it is time to save.
double NoticeOf(const JobSpec& job, const Plan& plan) {
  const FaultCosts costs =
      FaultCostsOf(job.cluster, CheckpointBytes(QuestionOf(job)), plan.layout.world_size());
  return static_cast<double>(NoticeSeconds(plan.time.total_s(), costs.save_s, ""));
}

std::optional<NetworkDoor> DoorOf(const RunArguments& arguments) {
  if (arguments.listen.empty()) return std::nullopt;
  return NetworkDoor{.address = arguments.listen, .bundle_file = arguments.tls, .port_file = ""};
}

// `book`: null where no later allocation is to know what becomes of hosts.
std::function<void(const std::string&, const absl::Status&)> TellerOf(HostBook* book) {
  if (book == nullptr) return nullptr;
  return [book](const std::string& host, const absl::Status& state) { book->Take(host, state); };
}

Progress::Options ProgressOf(const PreparedJob& prepared) {
  const JobSpec& job = prepared.file.job;
  return {.columns = TerminalColumns,
          .log_freq = job.log_freq,
          .steps = job.training.steps,
          .planned_bytes = prepared.plan.peak_bytes() + job.cluster.device.library_bytes,
          .write = [](const std::string& text) { std::cout << text << std::flush; }};
}

int Train(const RunArguments& arguments, const PreparedJob& prepared, const Continuation& going_on,
          RunsEnd* end) {
  const JobSpec& job = prepared.file.job;
  const RunMetrics metrics(prepared.paths.metrics());
  std::atomic<StopWish> stop{StopWish::kNone};
  std::atomic<bool> person{false};  // has asked for it
  // TERM, USR1 and USR2 ask for the gentle stop however often they come; a Ctrl-C after any request
  // means now. A hang-up is no request at all.
  SignalWatcher signals({SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}, [&](int signal) {
    if (signal == SIGHUP) return;
    if (signal == SIGINT) person = true;
    const bool again = stop.load() != StopWish::kNone;
    stop = signal == SIGINT && again ? StopWish::kNow : std::max(stop.load(), StopWish::kSave);
  });
  Progress progress(ProgressOf(prepared));
  std::optional<EndTimer> timer;
  if (arguments.allocation) {
    timer.emplace(arguments.allocation->name(), NoticeOf(job, prepared.plan), [&stop] {
      StopWish none = StopWish::kNone;
      stop.compare_exchange_strong(none, StopWish::kSave);
    });
  }
  std::unique_ptr<HostBook> book;
  if (arguments.allocation) book = OpenHostBook(*arguments.allocation, prepared.paths.folder);
  const int64_t start_ms = BootTimeMs();  // the wall clock may be set meanwhile
  const absl::StatusOr<RunOutcome> outcome =
      RunInForeground({.paths = prepared.paths,
                       .job = job,
                       .layout = prepared.plan.layout,
                       .continuation = going_on,
                       .data = prepared.data,
                       .socket = SocketPath(prepared.paths.folder),
                       .hosts = arguments.hosts,
                       .starter = StarterFor(arguments, job),
                       .door = DoorOf(arguments),
                       .slots_as_offered = prepared.file.slots_as_offered,
                       .env = arguments.env,
                       .stop = &stop,
                       .on_event =
                           [&](const v1::Event& event) {
                             progress.Take(event);
                             end->run.progressed |= event.has_committed();
                             TakeCheck(event, book.get());
                           },
                       .say = [&](const std::string& line) { progress.Say(line); },
                       .host_changed = TellerOf(book.get())});
  book.reset();  // the next start reads it
  progress.Finish();
  Record(prepared, progress.state(), metrics);
  end->run.person_stopped = person;
  if (!outcome.ok()) return Fail(outcome.status());
  end->run.may_go_on = outcome->end == RunEnd::kSuspended;
  return Summary(arguments, prepared.file, Resolve(job, prepared.plan.layout), prepared.paths,
                 *outcome, progress,
                 StepsWithoutLine(metrics, going_on.after_step, progress.state().step),
                 static_cast<double>(BootTimeMs() - start_ms) / 1000);
}

// "took 4 hosts of LSF job 17", on a line of its own; empty: no scheduler has granted them.
std::string TakenText(const RunArguments& arguments) {
  const std::string system = GrantedBy(arguments);
  if (system.empty()) return "";
  const size_t hosts = arguments.hosts.size();
  return absl::StrCat("\ntook ", hosts, hosts == 1 ? " host of " : " hosts of ", system, " job ",
                      arguments.batch ? arguments.batch->job_id : arguments.allocation->name());
}

// The plan, the run folder and the hosts are said before anything is started.
void SayWhatBegins(const RunArguments& arguments, const PreparedJob& prepared,
                   const Continuation& going_on) {
  std::cout << "plan: " << LayoutText(prepared.plan.layout) << ", "
            << BytesText(prepared.plan.peak_bytes()) << " a worker, predicted "
            << SecondsText(prepared.plan.time.total_s()) << " a step\n";
  std::cout << (going_on.after_step > 0 ? "resume: " : "run: ") << prepared.paths.folder;
  if (going_on.after_step > 0) std::cout << " from step " << going_on.after_step;
  std::cout << TakenText(arguments);
  const std::string chosen = ChosenSlotsText(arguments.hosts);
  if (!chosen.empty()) std::cout << "\nslots: " << chosen;
  if (prepared.file.slots_as_offered) {
    std::cout << "\nslots: as many as the agents offer; the plan above is for "
              << prepared.file.job.cluster.slots_per_node << " each";
  }
  std::cout << std::endl;
}

// Takes hosts out that failed in an allocation before, and the topology of the others; returns
// lines about them.
std::vector<std::string> TakeNodes(RunArguments* arguments, const PreparedJob& prepared) {
  const JobSpec& job = prepared.file.job;
  const int least = job.hosts.least_nodes > 0 ? job.hosts.least_nodes : job.cluster.nodes;
  std::vector<std::string> lines =
      LeaveOutFailedHosts(*arguments->allocation, prepared.paths.folder, least, &arguments->hosts,
                          &arguments->left_out);
  if (job.hosts.failure_domains.empty()) {
    std::string topology = TakeTopology(&arguments->hosts);
    if (!topology.empty()) lines.push_back(std::move(topology));
  }
  return lines;
}

int Run(RunArguments arguments, RunsEnd* end) {
  int exit_code = kExitOk;
  const absl::StatusOr<PreparedJob> prepared = PrepareJob(
      arguments.path, OptionsFor(arguments),
      [&](const JobSpec& job) {
        RETURN_IF_ERROR(CheckTrainable(job));
        RETURN_IF_ERROR(CheckMpi(job, arguments.hosts));
        RETURN_IF_ERROR(SetDomains(job.hosts.failure_domains, &arguments.hosts));
        return CheckHostCount(job, arguments.hosts, GrantedBy(arguments));
      },
      [&](const JobSpec& job, const Plan& plan) {
        const bool is_here = arguments.hosts.empty() || IsThisHost(arguments.hosts.front().name);
        return is_here ? CheckMemory(job, plan) : absl::OkStatus();
      },
      &exit_code);
  if (!prepared.ok()) return exit_code;
  const JobSpec& job = prepared->file.job;
  end->run_folder = prepared->paths.folder;
  const absl::StatusOr<OpenedRun> run =
      OpenRun(*prepared, arguments.options.fresh, arguments.accept, std::cout);
  if (!run.ok()) return Fail(run.status());
  const Continuation& going_on = run->going_on;
  if (going_on.after_step >= job.training.steps) {
    const bool more = going_on.after_step > job.training.steps;
    std::cout << "done: step " << going_on.after_step
              << (more ? " is saved, training.steps asks for " : " of ") << job.training.steps
              << "\n";
    PrintFiles(job, prepared->paths, going_on.after_step);
    PrintHowToGoOn(arguments, prepared->file, run->resolved, going_on.after_step);
    return kExitOk;
  }
  const absl::Status room = MakeRoom(*prepared, arguments.hosts, going_on.run);
  if (!room.ok()) return Fail(room);
  if (arguments.allocation) {
    for (const std::string& line : TakeNodes(&arguments, *prepared)) std::cout << line << "\n";
  }
  SayWhatBegins(arguments, *prepared, going_on);
  if (arguments.detach) {
    MakeLogsFolder(prepared->paths);
    const absl::StatusOr<pid_t> daemon = Detach(prepared->paths.logs() + "/run.log");
    if (!daemon.ok()) return Fail(daemon.status());
    if (*daemon > 0) {
      std::cout << "detached: it goes on as process " << *daemon << "\n"
                << "  " << arguments.program << " attach " << prepared->paths.folder << "\n"
                << "  " << arguments.program << " stop " << prepared->paths.folder << "\n";
      return kExitOk;
    }
  }
  for (const RunLock* each : {&run->lock, &run->checkpoints}) {
    const absl::Status written = each->WriteHolder(getpid());
    if (!written.ok()) return Fail(written);
  }
  const std::vector<ChildProcess> visits =
      ClearHosts(StarterFor(arguments, job), job, going_on.run.id, arguments.left_out);
  return Train(arguments, *prepared, going_on, end);
}

// Says whether a person has asked for a run on this machine alone. A resolved.yaml states every key
// and so says nothing by it.
bool StatesNoScheduler(const RunArguments& arguments) {
  const absl::StatusOr<JobFile> file =
      ReadJobFile(arguments.path, {.sets = arguments.options.sets, .check_files = false});
  if (!file.ok() || file->tree.Find("resolved") != nullptr) return false;
  return file->tree.FindPath("cluster.scheduler") != nullptr &&
         file->job.scheduler.kind == Scheduler::kNone;
}

// The hosts of the scheduler's job that this is in are meant where nobody names others.
absl::Status FindAllocation(RunArguments* arguments) {
  if (!arguments->hosts.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(arguments->allocation, AllocationOf(getenv));
  ASSIGN_OR_RETURN(arguments->batch, BatchHostsHere());
  if (!arguments->allocation && !arguments->batch) return absl::OkStatus();
  if (StatesNoScheduler(*arguments)) {
    arguments->allocation.reset();
    arguments->batch.reset();
    return absl::OkStatus();
  }
  if (arguments->allocation) {
    if (FindInPath("srun").empty()) {
      return absl::NotFoundError(absl::StrCat(
          "this is Slurm job ", arguments->allocation->name(),
          ", but srun, which starts an agent on each of its nodes, is not in PATH; load Slurm's "
          "module, in a container mount its programs, name the hosts by --hosts, or run on this "
          "machine alone by --set cluster.scheduler=none"));
    }
    arguments->hosts = HostsOf(*arguments->allocation);
    return absl::OkStatus();
  }
  for (const std::string& name : arguments->batch->hosts) {
    arguments->hosts.push_back({.name = name});
  }
  return absl::OkStatus();
}

int RunAndEnd(const RunArguments& arguments) {
  const LiveOutput live(std::cout, STDOUT_FILENO);
  RunsEnd end;
  const int code = Run(arguments, &end);
  // Whoever starts the agents has sent the notice, and starts this again, too.
  const bool is_noticed = end.run.may_go_on && !end.run.person_stopped && code == kExitOk;
  if (!arguments.listen.empty() && is_noticed) return kExitTryAgain;
  if (!arguments.allocation || end.run_folder.empty()) return code;
  end.run.may_go_on |= code == kExitTryAgain;
  if (!end.run.may_go_on || end.run.person_stopped) PrintAccounting(*arguments.allocation);
  return EndInSlurm(*arguments.allocation, end.run_folder, end.run, code);
}

}  // namespace

void AddRun(CLI::App& app, const std::string& program, int* exit_code) {
  const auto arguments = std::make_shared<RunArguments>();
  arguments->options.to_run = true;
  arguments->program = program;
  CLI::App* run = app.add_subcommand("run", "train a job file; goes on where it was");
  run->add_option("job", arguments->path, "the job file, or a run's resolved.yaml")->required();
  run->add_option("--set", arguments->options.sets, "replace a key: --set training.steps=100")
      ->allow_extra_args(false);
  run->add_flag("--fresh", arguments->options.fresh, "move an old run aside and start anew");
  AddAcceptOption(*run, &arguments->accept);
  run->add_flag("--detach", arguments->detach, "go on in the background");
  AddHostOptions(*run, &arguments->host_words);
  CLI::Option* listen =
      run->add_option("--listen", arguments->listen,
                      "ADDRESS:PORT where agents dial that others start on --hosts, in place of "
                      "ssh; a run that a signal stops then ends with 75")
          ->needs("--hosts");
  CLI::Option* tls =
      run->add_option("--tls", arguments->tls, "bundle of `weftd issue server`, for --listen");
  listen->needs(tls);
  tls->needs(listen);
  run->callback([arguments, exit_code] {
    if (const int copies = CopiesStarted(); copies > 1) {
      *exit_code = Fail(absl::InvalidArgumentError(absl::StrCat(
          "mpirun has started ", copies, " copies of weft run, which starts its ranks ",
          "itself; call it once, without mpirun")));
      return;
    }
    ForgetOuterMpirun();
    absl::StatusOr<std::vector<ListedHost>> hosts = HostsOf(arguments->host_words.words);
    absl::StatusOr<std::map<std::string, std::string>> env = VariablesOf(arguments->host_words);
    if (!hosts.ok() || !env.ok()) {
      *exit_code = Fail(hosts.ok() ? env.status() : hosts.status());
      return;
    }
    arguments->hosts = *std::move(hosts);
    arguments->env = *std::move(env);
    const absl::Status found = FindAllocation(arguments.get());
    *exit_code = found.ok() ? RunAndEnd(*arguments) : Fail(found);
  });
}

}  // namespace weft
