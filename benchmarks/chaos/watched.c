/* Preloaded into a process: every change of files below a root is told to a driver before and after it happens.
 *
 * Nothing is watched before `watch_files`. A line `operation \t path \t second path` goes out, a line with an error
 * number comes back: 0 lets the call happen, anything else makes it fail with that number. After the call a line with
 * its error number (0: done) goes out. The driver may kill this process, or its file system, instead of answering.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[PATH_MAX];
static int out = -1, in = -1;
static __thread int busy;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void watch_files(const char *path, int to, int from) {
  snprintf(root, sizeof root, "%s", path);
  out = to;
  in = from;
}

static void of_descriptor(int descriptor, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t n = readlink(link, path, PATH_MAX - 1);
  path[n < 0 ? 0 : n] = 0;
}

static void of_name(int folder, const char *name, char *path) {
  path[0] = 0;
  if (name[0] == '/') {
    snprintf(path, PATH_MAX, "%s", name);
    return;
  }
  if (folder == AT_FDCWD) {
    if (!getcwd(path, PATH_MAX)) path[0] = 0;
  } else {
    of_descriptor(folder, path);
  }
  size_t n = strlen(path);
  snprintf(path + n, PATH_MAX - n, "/%s", name);
}

static int watched(const char *path) { return path && strncmp(path, root, strlen(root)) == 0; }

static void say(const char *line) {
  size_t done = 0, n = strlen(line);
  ssize_t (*real)(int, const void *, size_t) = REAL(write);
  while (done < n) {
    ssize_t wrote = real(out, line + done, n - done);
    if (wrote <= 0) _exit(99);
    done += wrote;
  }
}

/* -1: nobody watches; else the error number to fail with. */
static int ask(const char *operation, const char *path, const char *second) {
  if (out < 0 || busy || !(watched(path) || watched(second))) return -1;
  char line[2 * PATH_MAX + 64], byte;
  int answer = 0;
  busy = 1;
  snprintf(line, sizeof line, "%s\t%s\t%s\n", operation, path, second ? second : "");
  say(line);
  while (1) {
    if (read(in, &byte, 1) != 1) _exit(98);
    if (byte == '\n') break;
    answer = 10 * answer + (byte - '0');
  }
  busy = 0;
  return answer;
}

static void done(int asked, int failed) {
  if (asked < 0) return;
  int before = errno;
  char line[32];
  snprintf(line, sizeof line, "%d\n", failed ? before : 0);
  say(line);
  errno = before;
}

#define WATCHED(type, operation, path, second, call)  \
  do {                                                \
    int asked = ask(operation, path, second);         \
    if (asked > 0) {                                  \
      errno = asked;                                  \
      done(asked, 1);                                 \
      return -1;                                      \
    }                                                 \
    type result = call;                               \
    done(asked, result < 0);                          \
    return result;                                    \
  } while (0)

static int opened(const char *symbol, int folder, const char *name, int flags, mode_t mode) {
  int (*real)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, symbol);
  char path[PATH_MAX];
  if (out < 0 || !(flags & (O_CREAT | O_TRUNC))) return real(folder, name, flags, mode);
  of_name(folder, name, path);
  WATCHED(int, flags & O_CREAT ? "create" : "truncate", path, NULL, real(folder, name, flags, mode));
}

#define MODE(flags)                    \
  mode_t mode = 0;                     \
  if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list rest;                      \
    va_start(rest, flags);             \
    mode = va_arg(rest, mode_t);       \
    va_end(rest);                      \
  }

int open(const char *name, int flags, ...) { MODE(flags) return opened("openat", AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened("openat64", AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags) return opened("openat", folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return opened("openat64", folder, name, flags, mode); }

#define BY_DESCRIPTOR(type, name, parameters, arguments)                    \
  type name parameters {                                                    \
    char path[PATH_MAX] = "";                                               \
    if (out >= 0 && !busy) of_descriptor(descriptor, path);                 \
    WATCHED(type, #name, path, NULL, REAL(name) arguments);                 \
  }

BY_DESCRIPTOR(ssize_t, write, (int descriptor, const void *data, size_t n), (descriptor, data, n))
BY_DESCRIPTOR(ssize_t, pwrite, (int descriptor, const void *data, size_t n, off_t at), (descriptor, data, n, at))
BY_DESCRIPTOR(ssize_t, pwrite64, (int descriptor, const void *data, size_t n, off64_t at), (descriptor, data, n, at))
BY_DESCRIPTOR(int, fsync, (int descriptor), (descriptor))
BY_DESCRIPTOR(int, fdatasync, (int descriptor), (descriptor))

#define BY_NAME(operation, name, parameters, folder, path, arguments)   \
  int name parameters {                                                 \
    char whole[PATH_MAX] = "";                                          \
    if (out >= 0) of_name(folder, path, whole);                         \
    WATCHED(int, operation, whole, NULL, REAL(name) arguments);         \
  }

BY_NAME("mkdir", mkdir, (const char *name, mode_t mode), AT_FDCWD, name, (name, mode))
BY_NAME("mkdir", mkdirat, (int folder, const char *name, mode_t mode), folder, name, (folder, name, mode))
BY_NAME("rmdir", rmdir, (const char *name), AT_FDCWD, name, (name))
BY_NAME("unlink", unlink, (const char *name), AT_FDCWD, name, (name))
BY_NAME(flags & AT_REMOVEDIR ? "rmdir" : "unlink", unlinkat, (int folder, const char *name, int flags), folder, name,
        (folder, name, flags))

#define BY_TWO_NAMES(operation, name, parameters, from, old, to, new, arguments) \
  int name parameters {                                                          \
    char one[PATH_MAX] = "", other[PATH_MAX] = "";                               \
    if (out >= 0) of_name(from, old, one), of_name(to, new, other);              \
    WATCHED(int, operation, one, other, REAL(name) arguments);                   \
  }

BY_TWO_NAMES("rename", rename, (const char *a, const char *b), AT_FDCWD, a, AT_FDCWD, b, (a, b))
BY_TWO_NAMES("rename", renameat, (int i, const char *a, int j, const char *b), i, a, j, b, (i, a, j, b))
BY_TWO_NAMES(flags & 2 ? "exchange" : "rename", renameat2, (int i, const char *a, int j, const char *b, unsigned flags),
             i, a, j, b, (i, a, j, b, flags))
BY_TWO_NAMES("link", link, (const char *a, const char *b), AT_FDCWD, a, AT_FDCWD, b, (a, b))
BY_TWO_NAMES("link", linkat, (int i, const char *a, int j, const char *b, int flags), i, a, j, b, (i, a, j, b, flags))
