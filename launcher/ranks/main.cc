// weft-ranks: starts a generation's workers on this machine without mpirun. Started by weft run.
// Usage: weft-ranks WORLD_SIZE PROGRAM [ARGUMENT...]
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "launcher/ranks/rank_group.h"

namespace {

volatile std::sig_atomic_t stop = 0;

}  // namespace

int main(int argc, char** argv) {
  const int world_size = argc >= 3 ? std::atoi(argv[1]) : 0;
  if (world_size < 1) {
    std::fprintf(stderr, "weft-ranks: usage: weft-ranks WORLD_SIZE PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { stop = 1; });
  std::signal(SIGINT, [](int) { stop = 1; });
  return weft::RunRankGroup(world_size, {argv + 2, argv + argc}, &stop);
}
