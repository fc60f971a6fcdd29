/* Stands in weft-worker's place where tests are about what starts and ends ranks: an MPI program
   that adds up all ranks and writes what it sees of itself to <run folder>/rank-<rank>. With
   STAYS it then waits to be killed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* Variable(const char* name) {
  const char* value = getenv(name);
  return value == NULL ? "-" : value;
}

/* Where the memory lies that ranks of one host share. */
static void FindSharedMemory(char* path, size_t size) {
  snprintf(path, size, "-");
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return;
  char line[4352];
  while (fgets(line, sizeof(line), maps) != NULL) {
    const char* begin = strchr(line, '/');
    if (begin == NULL || strstr(begin, "/vader_segment") == NULL) continue;
    snprintf(path, size, "%s", begin);
    path[strcspn(path, "\n")] = '\0';
    break;
  }
  fclose(maps);
}

int main(int argc, char** argv) {
  const char* folder = ".";
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--run-folder=", 13) == 0) folder = argv[i] + 13;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double own = rank;
  double sum = 0;
  MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  char host[256] = {0};
  gethostname(host, sizeof(host) - 1);
  char shared_memory[4096];
  FindSharedMemory(shared_memory, sizeof(shared_memory));
  char path[4096];
  snprintf(path, sizeof(path), "%s/.rank-%d", folder, rank);
  FILE* file = fopen(path, "w");
  if (file == NULL) return 1;
  fprintf(file, "%g %s %s %s %s %s %s %d %s\n", sum, host, Variable("WEFT_HOST"),
          Variable("WEFT_RANK_SOCKET"), Variable("WEFT_RUN"), Variable("HELLO"), Variable("TMPDIR"),
          (int)getpid(), shared_memory);
  fclose(file);
  char done[4096];
  snprintf(done, sizeof(done), "%s/rank-%d", folder, rank);
  rename(path, done);
  if (getenv("STAYS") != NULL) sleep(120);
  MPI_Finalize();
  return 0;
}
