/* Loaded into a worker in front of the C library (LD_PRELOAD), it plays a disk with an I/O error:
   as long as the file named by FAILING_DISK exists and says so ("write" or "fsync"), that call
   fails with EIO for files below a folder named checkpoint; "lines": no line can be written to
   metrics.jsonl. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int Fails(int fd, const char* call, const char* where) {
  const char* flag = getenv("FAILING_DISK");
  if (flag == NULL) return 0;
  const int wanted = open(flag, O_RDONLY | O_CLOEXEC);
  if (wanted < 0) return 0;
  char said[16] = {0};
  const ssize_t got = read(wanted, said, sizeof(said) - 1);
  close(wanted);
  if (got <= 0 || strcmp(said, call) != 0) return 0;
  char link[64];
  char path[4096] = {0};
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, where) != NULL;
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static ssize_t (*real)(int, const void*, size_t);
  const int before = errno;
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "write");
  if (Fails(fd, "write", "/checkpoint/") || Fails(fd, "lines", "/metrics.jsonl")) {
    errno = EIO;
    return -1;
  }
  errno = before;
  return real(fd, bytes, count);
}

int fsync(int fd) {
  static int (*real)(int);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "fsync");
  if (Fails(fd, "fsync", "/checkpoint/")) {
    errno = EIO;
    return -1;
  }
  return real(fd);
}
