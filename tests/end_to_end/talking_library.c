/* Loaded into a worker (LD_PRELOAD), it plays a library that talks: it writes numbered lines of 128
   bytes to stdout, as fast as a thousand a second. In rank 0 they end after TALKING_LINES. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* Talk(void* unused) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  const char* most = getenv("TALKING_LINES");
  const long lines = rank == NULL || strcmp(rank, "0") == 0 ? atol(most == NULL ? "0" : most) : -1;
  for (long line = 0; line != lines; ++line) {
    char text[129];
    snprintf(text, sizeof(text), "talk %09ld %112s\n", line, "of nothing");
    if (write(STDOUT_FILENO, text, 128) < 0) break;
    usleep(1000);
  }
  return unused;
}

__attribute__((constructor)) static void Begin(void) {
  if (strcmp(program_invocation_short_name, "weft-worker") != 0) return;
  sigset_t all, before;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are the worker's */
  if (pthread_create(&thread, NULL, Talk, NULL) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}
