// This program measures the control plane of a weftd that serves many jobs: a real weftd on a fresh
// folder, and in this process its callers.
// - mutations: so many under way at all times, each answered once it is on the disk;
// - watchers: what it costs to tell them all what many jobs do, and how late they hear it;
// - restart: until it answers again, with so many records in its journal.
//
// build/release/bench/control_bench [mutations | watchers | restart] [--folder FOLDER]
// Works in a folder of its own in FOLDER, which it removes: the disk there is what is measured.
#include <cstdio>
#include <filesystem>
#include <functional>

#include "CLI/CLI.hpp"
#include "absl/synchronization/mutex.h"
#include "bench/control_client.h"
#include "bench/control_mutations.h"
#include "bench/control_restart.h"
#include "bench/control_watchers.h"
#include "bench/weftd_process.h"

int main(int argc, char** argv) {
  weft::ControlBenchOptions options;
  options.weftd = std::filesystem::canonical("/proc/self/exe").parent_path() / "../bin/weftd";
  options.folder = std::filesystem::temp_directory_path();
  CLI::App app("what the control plane of weftd costs", "control_bench");
  app.require_subcommand(1);
  app.add_option("--weftd", options.weftd, "another build's coordinator");
  app.add_option("--folder", options.folder, "where to work")->check(CLI::ExistingDirectory);
  app.add_option("--seconds", options.seconds, "to measure for")->check(CLI::Range(1.0, 600.0));
  CLI::App& mutations =
      *app.add_subcommand("mutations", "durable ones, many at once")->fallthrough();
  mutations.add_option("--in-flight", options.in_flight, "under way at all times")
      ->check(CLI::Range(1, 10000));
  mutations.add_option("--queued", options.queued, "jobs that wait beside")
      ->check(CLI::Range(0, 9000));
  CLI::App& watchers = *app.add_subcommand("watchers", "of many jobs that train")->fallthrough();
  watchers.add_option("--watchers", options.watchers, "of all jobs")->check(CLI::Range(1, 900));
  watchers.add_option("--jobs", options.jobs, "that train")->check(CLI::Range(1, 1000));
  watchers.add_option("--steps", options.steps_per_s, "of each job, a second")
      ->check(CLI::Range(1, 1000));
  CLI::App& restart = *app.add_subcommand("restart", "with a long journal")->fallthrough();
  restart.add_option("--records", options.records, "in the journal")
      ->check(CLI::Range(int64_t{1}, int64_t{100000000}));
  restart.add_flag("--all-records", options.all_records, "as if there were no snapshots");
  CLI11_PARSE(app, argc, argv);
  weft::AllowManyFiles();
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as weftd does
  absl::Status status;
  if (mutations.parsed()) status = weft::MeasureMutations(options);
  if (watchers.parsed()) status = weft::MeasureWatchers(options);
  if (restart.parsed()) status = weft::MeasureRestart(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "control_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
