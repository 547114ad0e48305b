/* Whose a file is: the image's, the task's, or judged code's. */
#define _GNU_SOURCE
#include "whose.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

int below(const char *path, const char *folder) {
  size_t n = strlen(folder);
  return n && starts(path, folder) && (path[n] == '/' || !path[n]);
}

const char *base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

int look(int fd, const char *path, struct statx *s) {
  unsigned wanted = STATX_CTIME | STATX_MTIME | STATX_UID | STATX_MODE | STATX_NLINK | STATX_INO;
  return syscall(SYS_statx, fd, path, fd < 0 ? 0 : AT_EMPTY_PATH, wanted, s);
}

int is_one_file(const struct statx *one, const struct statx *other) {
  return one->stx_ino == other->stx_ino && one->stx_dev_major == other->stx_dev_major && one->stx_dev_minor == other->stx_dev_minor;
}

size_t read_start(const char *path, char *to, size_t size) {
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  ssize_t n = fd < 0 ? 0 : syscall(SYS_read, fd, to, size - 1);
  if (fd >= 0) syscall(SYS_close, fd);
  if (n < 0) n = 0;
  to[n] = 0;
  return n;
}

void write_number(char *to, unsigned long number) {
  size_t digits = 1;
  for (unsigned long rest = number; rest /= 10;) digits++;
  for (to[digits] = 0; digits; number /= 10) to[--digits] = '0' + number % 10;
}

void path_of(int fd, char *real, size_t size) {
  char link[40] = "/proc/self/fd/";
  write_number(link + strlen(link), fd);
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, real, size - 1);
  real[n > 0 ? n : 0] = 0;
}

const char *program_of(const char *link, char *place, size_t size) {
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, place, size - 1);
  place[n > 0 ? n : 0] = 0;
  return base(place);
}

const char *program(char *place, size_t size) { return program_of("/proc/self/exe", place, size); }

void read_workdir(char *workdir, size_t size) {
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, "/verifier/workdir", workdir, size - 1);
  workdir[n > 0 ? n : 0] = 0;
}

static int is_before(struct statx_timestamp when, struct statx_timestamp since) {
  return when.tv_sec < since.tv_sec || (when.tv_sec == since.tv_sec && when.tv_nsec < since.tv_nsec);
}

/* Whether a file of /tests is as the task has it: root's were given one time, those of others are old. */
static int is_original(const struct statx *file, const struct statx *since) {
  struct statx stamp;
  if (is_before(file->stx_ctime, since->stx_ctime)) return 1;
  return !file->stx_uid && look(AT_FDCWD, "/verifier/stamp", &stamp) == 0 && file->stx_mtime.tv_sec == stamp.stx_mtime.tv_sec &&
         file->stx_mtime.tv_nsec == stamp.stx_mtime.tv_nsec;
}

int whose(const char *path) { return whose_at(AT_FDCWD, path); }

int whose_at(int folder, const char *path) {
  char real[4096], workdir[4096];
  struct statx file, start;
  int fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC, 0);
  if (fd < 0) return OF_IMAGE; /* there is nothing to run */
  path_of(fd, real, sizeof real);
  int known = *real && look(fd, "", &file) == 0;
  syscall(SYS_close, fd);
  if (!known) return JUDGED;
  if (below(real, "/verifier")) return OF_TESTS;
  read_workdir(workdir, sizeof workdir);
  if (below(real, workdir) || look(AT_FDCWD, "/verifier/since", &start) < 0) return JUDGED;
  /* A script of the task's may have been made executable since; what was put beside it may be judged. */
  if (below(real, "/tests")) return is_original(&file, &start) ? OF_TESTS : JUDGED;
  return is_before(file.stx_ctime, start.stx_ctime) ? OF_IMAGE : JUDGED;
}

int is_judged(const char *path) { return whose(path) == JUDGED; }

int is_one_of(const char *word, const char *words) {
  for (size_t n = strlen(word); n && (words = strstr(words, word)); words += n)
    if (words[-1] == ' ' && words[n] == ' ') return 1;
  return 0;
}
