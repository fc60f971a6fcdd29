// weft-shim: stands in a worker's place under mpirun and tells the agent how the worker ends.
// Started by weft agent, through mpirun.
// Usage: weft-shim AGENT_SOCKET GENERATION LOG_FOLDER PROGRAM [ARGUMENT...]
#include <cstdio>
#include <cstdlib>

#include "launcher/shim/shim.h"

int main(int argc, char** argv) {
  const long long generation = argc >= 5 ? std::atoll(argv[2]) : 0;
  if (generation < 1) {
    std::fprintf(stderr,
                 "weft-shim: usage: weft-shim AGENT_SOCKET GENERATION LOG_FOLDER PROGRAM "
                 "[ARGUMENT...]\n");
    return 2;
  }
  return weft::RunShim({.agent = argv[1],
                        .generation = generation,
                        .logs = argv[3],
                        .argv = {argv + 4, argv + argc}});
}
