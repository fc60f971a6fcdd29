// weft-worker: one process per device. Started by mpirun or srun, never by hand.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "process/last_words.h"
#include "process/version.h"
#include "worker/backend/library_environment.h"
#include "worker/probe/probe.h"
#include "worker/process/inference_session.h"
#include "worker/process/session.h"

int main(int argc, char** argv) {
  weft::HoldLastWords();
  weft::AskForLaunchOrder();  // before there are threads
  CLI::App app{"weft-worker: computes one rank of a job"};
  weft::SessionOptions options;
  bool version = false;
  std::string probe_kind;
  weft::ProbeOptions probe;
  app.add_option("--generation", options.generation, "the attempt this worker is started for");
  app.add_option("--run-folder", options.run_folder, "absolute folder of the run");
  app.add_option("--backend-folder", options.backend_folder, "where libweft_cpu.so lies");
  app.add_flag("--version", version, "print the version");
  bool infer = false;
  app.add_flag("--infer", infer, "evaluate or generate as a request on stdin says");
  CLI::Option* probing =
      app.add_option("--probe", probe_kind, "print devices, rates, product or links of --backend")
          ->expected(0, 1)
          ->default_str("devices");
  app.add_option("--backend", probe.backend, "cpu or cuda, for --probe");
  app.add_option("--threads", probe.threads, "BLAS threads, for --probe")
      ->check(CLI::PositiveNumber);
  app.add_option("--relay-folder", probe.relay_folder,
                 "new, empty and the same for all ranks, for --probe links without MPI");
  app.add_option("--seconds", probe.seconds, "about how long to measure, for --probe")
      ->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (version) {
    std::printf("%s\n", weft::VersionText().c_str());
    return 0;
  }
  if (infer) return weft::RunInferenceSession(std::cin, std::cout, options.backend_folder);
  if (probing->count() > 0) {
    probe.backend_folder = options.backend_folder;
    const auto kind = weft::ParseProbeKind(probe_kind.empty() ? "devices" : probe_kind);
    if (kind.ok()) probe.kind = *kind;
    return weft::ProbeExitCode(kind.ok() ? weft::Probe(probe) : kind.status());
  }
  const char* socket = std::getenv("WEFT_RANK_SOCKET");  // each host's agent has its own
  if (socket == nullptr || options.generation < 1 || options.run_folder.empty()) {
    std::fprintf(stderr,
                 "weft-worker: WEFT_RANK_SOCKET, --generation and --run-folder are needed; "
                 "workers are started by weft run, not by hand\n");
    return 2;
  }
  options.agent = std::string("unix:") + socket;
  return weft::RunSession(options);
}
