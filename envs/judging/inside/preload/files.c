/* The C library's functions that open, look at, link and enter files. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reach.h"
#include "whose.h"

static int may_ask_again(void) { return (errno == EACCES || errno == EPERM) && syscall(SYS_geteuid) == 0; }

/* The system calls are as in the C library: -1, and errno says why. */
#define AS_JUDGED(result, failed, again)                                                    \
  if (result == failed && may_ask_again()) {                                                \
    syscall(SYS_setfsuid, owner_of_judged());                                               \
    result = again;                                                                         \
    int why = errno;                                                                        \
    syscall(SYS_setfsuid, 0);                                                               \
    errno = why;                                                                            \
  }

#define OPEN(folder)                                                                        \
  va_list list;                                                                             \
  va_start(list, flags);                                                                    \
  int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0;                       \
  va_end(list);                                                                             \
  int writes = (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != 0;                              \
  if (writes ? leads_astray(folder, path, flags & O_TRUNC) : !(flags & (O_PATH | O_NONBLOCK)) && is_bait(folder, path)) { \
    errno = EACCES;                                                                         \
    return -1;                                                                              \
  }                                                                                         \
  int fd = syscall(SYS_openat, folder, path, flags, mode);                                  \
  AS_JUDGED(fd, -1, (int)syscall(SYS_openat, folder, path, flags, mode))                    \
  if ((flags & (O_ACCMODE | O_PATH)) == O_RDONLY && is_planted(folder, path, fd)) {         \
    syscall(SYS_close, fd);                                                                 \
    fd = -1;                                                                                \
    errno = EACCES;                                                                         \
  }                                                                                         \
  if (writes) hold(fd);                                                                     \
  return fd

int open(const char *path, int flags, ...) { OPEN(AT_FDCWD); }

int open64(const char *path, int flags, ...) { OPEN(AT_FDCWD); }

int creat(const char *path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int creat64(const char *path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int openat(int folder, const char *path, int flags, ...) { OPEN(folder); }

int openat64(int folder, const char *path, int flags, ...) { OPEN(folder); }

typedef FILE *opener(const char *, const char *);

static FILE *open_stream(const char *name, const char *path, const char *mode) {
  opener *real = (opener *)dlsym(RTLD_NEXT, name);
  int writes = strpbrk(mode, "wa+") != NULL;
  FILE *file = NULL;
  if (real && !(writes ? leads_astray(AT_FDCWD, path, *mode == 'w') : is_bait(AT_FDCWD, path))) {
    file = real(path, mode);
    AS_JUDGED(file, NULL, real(path, mode))
    if (file && writes) hold(fileno(file));
    if (!file || writes || !is_planted(AT_FDCWD, path, fileno(file))) return file;
    fclose(file);
  }
  errno = EACCES;
  return NULL;
}

FILE *fopen(const char *path, const char *mode) { return open_stream("fopen", path, mode); }

FILE *fopen64(const char *path, const char *mode) { return open_stream("fopen64", path, mode); }

/* What asks whether two files are one, as diff does, opens neither. */
static int look_at(int folder, const char *path, struct stat *s, int flags) {
  int failed = syscall(SYS_newfstatat, folder, path, s, flags);
  AS_JUDGED(failed, -1, (int)syscall(SYS_newfstatat, folder, path, s, flags))
  if (failed) return -1;
  if ((flags & AT_SYMLINK_NOFOLLOW) || !*path || s->st_uid) return 0;
  int fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC, 0), planted = is_planted(folder, path, fd);
  if (fd >= 0) syscall(SYS_close, fd);
  if (planted) errno = EACCES;
  return planted ? -1 : 0;
}

/* Each under the names by which programs of older C libraries, and of large files, call it. */
#define NAMED(name, parameters, ...)        \
  int name##_of parameters __asm__(#name);  \
  int name##_of parameters { return __VA_ARGS__; }
#define STAT(name) NAMED(name, (const char *path, struct stat *s), look_at(AT_FDCWD, path, s, 0))
#define STATAT(name) \
  NAMED(name, (int folder, const char *path, struct stat *s, int flags), look_at(folder, path, s, flags))
#define XSTAT(name) NAMED(name, (int v, const char *path, struct stat *s), (void)v, look_at(AT_FDCWD, path, s, 0))
#define XSTATAT(name) \
  NAMED(name, (int v, int folder, const char *path, struct stat *s, int flags), (void)v, look_at(folder, path, s, flags))
STAT(stat) STAT(stat64)
STATAT(fstatat) STATAT(fstatat64)
XSTAT(__xstat) XSTAT(__xstat64)
XSTATAT(__fxstatat) XSTATAT(__fxstatat64)
NAMED(__open_2, (const char *path, int flags), open(path, flags))
NAMED(__open64_2, (const char *path, int flags), open(path, flags))
NAMED(__openat_2, (int folder, const char *path, int flags), openat(folder, path, flags))
NAMED(__openat64_2, (int folder, const char *path, int flags), openat(folder, path, flags))

/* A right of root's own, or of who judged code runs as. */
static int may(int folder, const char *path, int mode, int flags) {
  int failed = syscall(SYS_faccessat2, folder, path, mode, flags);
  if (failed && errno == ENOSYS) return syscall(SYS_faccessat, folder, path, mode);
  AS_JUDGED(failed, -1, (int)syscall(SYS_faccessat2, folder, path, mode, flags | AT_EACCESS))
  return failed;
}

static int look_more(int folder, const char *path, int flags, unsigned mask, struct statx *s) {
  int failed = syscall(SYS_statx, folder, path, flags, mask, s);
  AS_JUDGED(failed, -1, (int)syscall(SYS_statx, folder, path, flags, mask, s))
  return failed;
}

NAMED(statx, (int folder, const char *path, int flags, unsigned mask, struct statx *s),
      look_more(folder, path, flags, mask, s))
NAMED(access, (const char *path, int mode), may(AT_FDCWD, path, mode, 0))
NAMED(eaccess, (const char *path, int mode), may(AT_FDCWD, path, mode, AT_EACCESS))
NAMED(euidaccess, (const char *path, int mode), may(AT_FDCWD, path, mode, AT_EACCESS))
NAMED(faccessat, (int folder, const char *path, int mode, int flags), may(folder, path, mode, flags))

/* What is copied or unpacked leads to the tests by no link. */
static int make_link(const char *target, int folder, const char *path) {
  if (syscall(SYS_geteuid) == 0 && copies_link_to_tests(target)) {
    errno = EACCES;
    return -1;
  }
  return syscall(SYS_symlinkat, target, folder, path);
}

/* Nor by a name of their own. */
static int make_name(int from, const char *path, int folder, const char *name, int flags) {
  if (syscall(SYS_geteuid) == 0 && unpacks_of_tests(from, path)) {
    errno = EACCES;
    return -1;
  }
  return syscall(SYS_linkat, from, path, folder, name, flags);
}

NAMED(link, (const char *path, const char *name), make_name(AT_FDCWD, path, AT_FDCWD, name, 0))
NAMED(linkat, (int from, const char *path, int folder, const char *name, int flags), make_name(from, path, folder, name, flags))
NAMED(symlink, (const char *target, const char *path), make_link(target, AT_FDCWD, path))
NAMED(symlinkat, (const char *target, int folder, const char *path), make_link(target, folder, path))

/* What judged code has made it may make otherwise, and take away: root does so as who that code runs as. */
static int remove_at(int folder, const char *path, int flags) {
  if (is_to_go(folder, path)) {
    errno = EACCES;
    return -1;
  }
  int failed = syscall(SYS_unlinkat, folder, path, flags);
  AS_JUDGED(failed, -1, (int)syscall(SYS_unlinkat, folder, path, flags))
  return failed;
}

/* Of root's below the working directory judged code may make files, as in those that were there when it first ran (see
 * writable.py). */
static int make_folder(int folder, const char *path, mode_t mode) {
  char real[4096], workdir[4096];
  int failed = syscall(SYS_mkdirat, folder, path, mode);
  AS_JUDGED(failed, -1, (int)syscall(SYS_mkdirat, folder, path, mode))
  if (failed || syscall(SYS_geteuid) || syscall(SYS_faccessat, AT_FDCWD, "/verifier/opened", F_OK)) return failed;
  int fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0);
  if (fd < 0) return 0;
  path_of(fd, real, sizeof real);
  syscall(SYS_close, fd);
  read_workdir(workdir, sizeof workdir);
  if (below(real, workdir) && (mode & 0700) == 0700 && (mode & 0055)) syscall(SYS_fchmodat, AT_FDCWD, real, 01777);
  return 0;
}

static int move(int from, const char *path, int to, const char *name, unsigned flags) {
  if (is_to_go(to, name)) {
    errno = EACCES;
    return -1;
  }
  int failed = syscall(SYS_renameat2, from, path, to, name, flags);
  AS_JUDGED(failed, -1, (int)syscall(SYS_renameat2, from, path, to, name, flags))
  return failed;
}

static int is_others(int folder, const char *path) {
  int astray = leads_astray(folder, path, 0);
  if (astray) errno = EACCES;
  return astray;
}

/* What judged code may read of the tests is the verifier's affair: a task that closes them to others closes them to no test. */
static mode_t with_readers(int fd, mode_t mode) {
  char real[4096];
  struct statx file;
  if (syscall(SYS_geteuid) || look(fd, "", &file) < 0) return mode;
  path_of(fd, real, sizeof real);
  return below(real, "/tests") ? mode | (file.stx_mode & 0005) : mode;
}

static int change_mode(int folder, const char *path, mode_t mode) {
  if (is_others(folder, path)) return -1;
  int fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC, 0);
  if (fd >= 0) {
    mode = with_readers(fd, mode);
    syscall(SYS_close, fd);
  }
  int failed = syscall(SYS_fchmodat, folder, path, mode);
  AS_JUDGED(failed, -1, (int)syscall(SYS_fchmodat, folder, path, mode))
  return failed;
}

static int change_mode_of(int fd, mode_t mode) {
  mode = with_readers(fd, mode);
  int failed = syscall(SYS_fchmod, fd, mode);
  AS_JUDGED(failed, -1, (int)syscall(SYS_fchmod, fd, mode))
  return failed;
}

static int change_times(int folder, const char *path, const struct timespec times[2], int flags) {
  if (path && !(flags & AT_SYMLINK_NOFOLLOW) && is_others(folder, path)) return -1;
  int failed = syscall(SYS_utimensat, folder, path, times, flags);
  AS_JUDGED(failed, -1, (int)syscall(SYS_utimensat, folder, path, times, flags))
  return failed;
}

/* Root has no right to give files away here, which matters to nobody: what is judged runs as one user. */
static int give(int folder, const char *path, uid_t user, gid_t group, int flags) {
  int failed = syscall(SYS_fchownat, folder, path, user, group, flags);
  return failed && errno == EPERM && syscall(SYS_geteuid) == 0 ? 0 : failed;
}

NAMED(unlink, (const char *path), remove_at(AT_FDCWD, path, 0))
NAMED(rmdir, (const char *path), remove_at(AT_FDCWD, path, AT_REMOVEDIR))
NAMED(unlinkat, (int folder, const char *path, int flags), remove_at(folder, path, flags))
NAMED(mkdir, (const char *path, mode_t mode), make_folder(AT_FDCWD, path, mode))
NAMED(mkdirat, (int folder, const char *path, mode_t mode), make_folder(folder, path, mode))
NAMED(rename, (const char *from, const char *to), move(AT_FDCWD, from, AT_FDCWD, to, 0))
NAMED(renameat, (int from, const char *path, int to, const char *name), move(from, path, to, name, 0))
NAMED(renameat2, (int from, const char *path, int to, const char *name, unsigned flags), move(from, path, to, name, flags))
NAMED(fchmod, (int fd, mode_t mode), change_mode_of(fd, mode))
NAMED(chmod, (const char *path, mode_t mode), change_mode(AT_FDCWD, path, mode))
NAMED(futimens, (int fd, const struct timespec times[2]), change_times(fd, NULL, times, 0))
NAMED(fchmodat, (int folder, const char *path, mode_t mode, int flags), ((void)flags, change_mode(folder, path, mode)))
NAMED(utimensat, (int folder, const char *path, const struct timespec times[2], int flags),
      change_times(folder, path, times, flags))
NAMED(chown, (const char *path, uid_t user, gid_t group), give(AT_FDCWD, path, user, group, 0))
NAMED(lchown, (const char *path, uid_t user, gid_t group), give(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW))
NAMED(fchown, (int fd, uid_t user, gid_t group), give(fd, "", user, group, AT_EMPTY_PATH))
NAMED(fchownat, (int folder, const char *path, uid_t user, gid_t group, int flags), give(folder, path, user, group, flags))

int chdir(const char *path) {
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0), planted = is_planted(AT_FDCWD, path, fd);
  if (fd >= 0) syscall(SYS_close, fd);
  if (planted) {
    errno = EACCES;
    return -1;
  }
  int failed = syscall(SYS_chdir, path);
  AS_JUDGED(failed, -1, (int)syscall(SYS_chdir, path))
  return failed;
}

DIR *opendir(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  return fd < 0 ? NULL : fdopendir(fd);
}
