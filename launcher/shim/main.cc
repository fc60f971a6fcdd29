// weft-shim: stands in a worker's place under mpirun and tells the agent how the worker ends; and
// in the place of mpirun's remote shell, where it asks the agent for a daemon. Started by weft
// agent, through mpirun; WEFT_SHIM_SOCKET says where the agent listens, WEFT_GENERATION whose
// mpirun it is: of more words than two mpirun 4.1 loses its remote shell's last. Usage: weft-shim
// GENERATION LOG_FOLDER PROGRAM [ARGUMENT...]
//        weft-shim daemon HOST orted [ARGUMENT...]
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launcher/shim/daemon_request.h"
#include "launcher/shim/shim.h"

namespace {

int Usage() {
  std::fprintf(stderr,
               "weft-shim: usage: weft-shim GENERATION LOG_FOLDER PROGRAM [ARGUMENT...], or "
               "weft-shim daemon HOST orted [ARGUMENT...], with WEFT_SHIM_SOCKET and "
               "WEFT_GENERATION set; it is started by mpirun, never by hand\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const char* agent = std::getenv("WEFT_SHIM_SOCKET");
  if (agent == nullptr || argc < 4) return Usage();
  const bool for_daemon = std::strcmp(argv[1], "daemon") == 0;
  const char* number = for_daemon ? std::getenv("WEFT_GENERATION") : argv[1];
  const long long generation = number == nullptr ? 0 : std::atoll(number);
  if (generation < 1) return Usage();
  if (for_daemon) {
    return weft::RequestDaemon({.agent = agent,
                                .generation = generation,
                                .host = argv[2],
                                .words = {argv + 3, argv + argc}});
  }
  return weft::RunShim(
      {.agent = agent, .generation = generation, .logs = argv[2], .argv = {argv + 3, argv + argc}});
}
