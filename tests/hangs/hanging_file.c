/* Loaded into a worker in front of the C library (LD_PRELOAD), it plays a disk that never answers:
   in the rank HANGING_RANK, that call of HANGING_CALL ("open" to read, "fsync") does not return for
   a file below a folder named checkpoint, once the file named by HANGING_FLAG exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int Hangs(const char* call, const char* path) {
  const char* wanted = getenv("HANGING_CALL");
  const char* rank = getenv("HANGING_RANK");
  const char* own = getenv("OMPI_COMM_WORLD_RANK");
  const char* flag = getenv("HANGING_FLAG");
  if (wanted == NULL || rank == NULL || own == NULL || flag == NULL) return 0;
  return strcmp(wanted, call) == 0 && strcmp(rank, own) == 0 &&
         strstr(path, "/checkpoint/") != NULL && access(flag, F_OK) == 0;
}

static void HangForEver(void) {
  for (;;) pause();
}

int open(const char* path, int flags, ...) {
  static int (*real)(const char*, int, ...);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "open");
  va_list more;
  va_start(more, flags);
  const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, unsigned) : 0;
  va_end(more);
  if ((flags & O_ACCMODE) == O_RDONLY && Hangs("open", path)) HangForEver();
  return real(path, flags, mode);
}

int fsync(int fd) {
  static int (*real)(int);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "fsync");
  char link[64];
  char path[4096] = {0};
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  if (readlink(link, path, sizeof(path) - 1) > 0 && Hangs("fsync", path)) HangForEver();
  return real(fd);
}
