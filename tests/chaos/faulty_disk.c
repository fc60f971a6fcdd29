// Preloaded into all programs of a run, it lets calls on regular files fail while a file says so.
// FAULTY_DISK is its path; its one line is "HOST PROGRAM CALL ERRNO PERCENT": of so many of a
// hundred calls of that program on that host each ends with the errno; 0: it writes half of what it
// was given, as a disk that becomes full may. FAULTY_DISK with ".struck" is there once one has. Of
// sockets and pipes nothing fails. (libfiu cannot be used: preloaded into mpirun it blocks for
// ever, in a calloc below dlopen.)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Returns -1 if the call is to go on as it is; else the errno, 0 for half of it.
static int FaultOf(const char* call) {
  static unsigned state = 1;
  const char* const path = getenv("FAULTY_DISK");
  const int kept = errno;
  const int file =
      path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    errno = kept;
    return -1;
  }
  char line[256] = "";
  const long got = syscall(SYS_read, file, line, sizeof line - 1);
  syscall(SYS_close, file);
  char own[64] = "", host[64], program[64], name[32];
  int error = 0, percent = 0;
  gethostname(own, sizeof own - 1);
  errno = kept;
  if (got <= 0 || sscanf(line, "%63s %63s %31s %d %d", host, program, name, &error, &percent) != 5)
    return -1;
  if (strcmp(host, own) != 0 || strcmp(program, program_invocation_short_name) != 0) return -1;
  if (strcmp(name, call) != 0) return -1;
  state = state * 1103515245u + 12345u;
  if ((int)(state / 65536 % 100) >= percent) return -1;
  char struck[4096];
  snprintf(struck, sizeof struck, "%s.struck", path);
  syscall(SYS_close,
          (int)syscall(SYS_openat, AT_FDCWD, struck, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  errno = kept;
  return error;
}

static int IsFile(int descriptor) {
  struct stat found;
  return fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);
}

static int Fails(int error) {
  errno = error;
  return -1;
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  const int fault = IsFile(descriptor) ? FaultOf("write") : -1;
  if (fault > 0) return Fails(fault);
  return syscall(SYS_write, descriptor, bytes, fault == 0 && count > 1 ? count / 2 : count);
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off64_t at) {
  const int fault = FaultOf("pwrite");
  if (fault > 0) return Fails(fault);
  return syscall(SYS_pwrite64, descriptor, bytes, fault == 0 && count > 1 ? count / 2 : count, at);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t at) {
  return pwrite64(descriptor, bytes, count, at);
}

int fsync(int descriptor) {
  const int fault = FaultOf("fsync");
  return fault > 0 ? Fails(fault) : (int)syscall(SYS_fsync, descriptor);
}

int fdatasync(int descriptor) {
  const int fault = FaultOf("fdatasync");
  return fault > 0 ? Fails(fault) : (int)syscall(SYS_fdatasync, descriptor);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const int fault = FaultOf("rename");
  if (fault > 0) return Fails(fault);
  return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int rename(const char* from, const char* to) {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}
