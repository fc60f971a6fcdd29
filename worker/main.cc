// weft-worker: one process per device. Started by mpirun or srun, never by hand.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "process/version.h"
#include "worker/session.h"

int main(int argc, char** argv) {
  CLI::App app{"weft-worker: computes one rank of a job"};
  weft::SessionOptions options;
  bool version = false;
  bool probe = false;
  std::string backend = "cpu";
  app.add_option("--coordinator", options.coordinator, "unix:<path of the coordinator's socket>");
  app.add_option("--generation", options.generation, "the attempt this worker is started for");
  app.add_option("--run-folder", options.run_folder, "absolute folder of the run");
  app.add_option("--backend-folder", options.backend_folder, "where libweft_cpu.so lies");
  app.add_flag("--version", version, "print the version");
  app.add_flag("--probe", probe, "print the devices of --backend as JSON");
  app.add_option("--backend", backend, "cpu or cuda, for --probe");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (version) {
    std::printf("%s\n", weft::VersionText().c_str());
    return 0;
  }
  if (probe) {
    const absl::Status status = weft::Probe(backend, options.backend_folder);
    if (status.ok()) return 0;
    std::fprintf(stderr, "weft-worker: %s\n", std::string(status.message()).c_str());
    return absl::IsInvalidArgument(status) ? 2 : 1;
  }
  if (options.coordinator.empty() || options.generation < 1 || options.run_folder.empty()) {
    std::fprintf(stderr,
                 "weft-worker: --coordinator, --generation and --run-folder are needed; workers "
                 "are started by weft run, not by hand\n");
    return 2;
  }
  return weft::RunSession(options);
}
