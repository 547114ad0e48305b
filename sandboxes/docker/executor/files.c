/* Files: read, written and made as the user that the request names. */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PROC_MAGIC = 0x9fa0, PATH_SIZE = 4096, EXCHANGE = 2, CAP_FOWNER = 3 };
enum { SMALL = 2048, HUGE = 131072 }; /* blocks of 512 bytes */

/* What becomes of a file that is written. Its data goes into a new file beside it, which takes its place in the end, so
 * that it is there whole or as it was. Where none can be made beside it, or it has other names, it is written itself. */
struct writing {
  struct who who;
  char groups[4 * GROUPS];
  mode_t mode;
  char beside[PATH_SIZE]; /* goes if the writing fails; empty: nothing does */
  char target[PATH_SIZE]; /* whose place it takes; empty: it is there already */
  int old;                /* a large file whose place it takes; -1 for none */
};

static int make_parents(char *path, mode_t mode) {
  for (char *s = path + 1; *s; s++) {
    if (*s != '/') continue;
    *s = 0;
    int failed = mkdir(path, mode) < 0 && errno != EEXIST;
    int error = errno;
    *s = '/';
    if (failed) return error;
  }
  return 0;
}

/* Only regular files, and never a write below /proc, where our own descriptors and memory are. */
static int check(int fd, int writing) {
  struct stat s;
  struct statfs fs;
  if (fstat(fd, &s) < 0) return errno;
  if (S_ISDIR(s.st_mode)) return EISDIR;
  if (!S_ISREG(s.st_mode)) return EINVAL;
  if (writing && (fstatfs(fd, &fs) < 0 || fs.f_type == PROC_MAGIC)) return EACCES;
  return 0;
}

/* Never waits, as for the other end of a pipe or the end of a lease. */
static int open_to_write(const char *path, int more, mode_t mode) {
  return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | more, mode);
}

/* Finds the file's own name, behind all links. Returns whether it has one: of a deleted file another is told. */
static int name_of(int fd, char *name) {
  struct stat s, there;
  char link[32] = "/proc/self/fd/", *end = strchr(link, 0);
  int size = 1;
  while (size <= fd / 10) size *= 10;
  for (; size; size /= 10) *end++ = '0' + fd / size % 10;
  ssize_t n = readlink(link, name, PATH_SIZE - 1);
  name[n > 0 ? n : 0] = 0;
  return *name == '/' && fstat(fd, &s) == 0 && lstat(name, &there) == 0 && s.st_ino == there.st_ino &&
         s.st_dev == there.st_dev;
}

/* Opens a new file beside the target, a file on `device`. Returns errno, or -1 where none can be that may take its place:
 * its folder is not ours to write, or something is mounted on it. */
static int open_beside(struct writing *w, dev_t device, int *file) {
  char name[NAME_SIZE], *last = strrchr(w->target, '/') + 1, first = *last;
  struct stat s;
  if (!make_name(name)) return errno;
  *last = 0;
  int fits = join(w->beside, PATH_SIZE, w->target, ".", name, NULL) > 0;
  *last = first;
  int fd = fits ? open_to_write(w->beside, O_CREAT | O_EXCL | O_NOFOLLOW, 0600) : -1;
  if (fits && fd < 0 && errno != EACCES && errno != EPERM && errno != EROFS) return errno;
  if (fd >= 0 && fstat(fd, &s) == 0 && s.st_dev == device) {
    *file = fd;
    return 0;
  }
  if (fd >= 0) unlink(w->beside), close(fd);
  *w->beside = 0;
  return -1;
}

/* Returns errno. */
static int open_target(struct job *j, const char *path) {
  struct writing *w = j->writing;
  struct stat s;
  int fd = open_to_write(path, 0, 0), is_new = fd < 0 && errno == ENOENT, beside = -1;
  if (is_new) fd = open_to_write(path, O_CREAT, w->mode);
  if (fd < 0) return errno;
  j->file = fd;
  if (is_new && !name_of(fd, w->beside)) *w->beside = 0;
  int error = check(fd, 1);
  if (!error && fstat(fd, &s) < 0) error = errno;
  int others = !error && s.st_uid != w->who.uid;
  if (others && (w->who.uid || !(root_keeps >> CAP_FOWNER & 1))) error = EPERM; /* its mode is another's */
  if (error || is_new) return error;
  int kept = s.st_nlink == 1 && name_of(fd, w->target) ? open_beside(w, s.st_dev, &beside) : -1;
  if (kept < 0) {
    *w->target = 0;
    if (s.st_blocks > HUGE) return EFBIG; /* see let_go */
    return ftruncate(fd, 0) < 0 ? errno : 0;
  }
  if (kept > 0) return kept;
  if (s.st_blocks > SMALL) w->old = fd;
  else close(fd);
  j->file = beside;
  return others && fchown(beside, s.st_uid, s.st_gid) < 0 ? errno : 0;
}

/* Closes a large file that has no name any more. To give back its room may take the kernel minutes, where its pieces lie
 * apart: a child waits for that. */
static void let_go(int old) {
  if (old < 0) return;
  pid_t child = fork();
  if (child == 0) {
    dup2(old, 0);
    close_from(1);
    _exit(0);
  }
  close(old);
}

void begin_write(struct job *j, const struct who *who, uint32_t mode, char *path) {
  struct writing *w = j->writing = calloc(1, sizeof *w);
  if (!w) _exit(70);
  j->state = WRITING;
  w->who = *who;
  w->mode = mode;
  w->old = -1;
  if (who->n_groups <= GROUPS) memcpy(w->groups, who->groups, 4 * (size_t)who->n_groups);
  w->who.groups = w->groups;
  j->failed = act_as(&w->who);
  if (!j->failed) j->failed = make_parents(path, 0755);
  if (!j->failed) j->failed = open_target(j, path);
  act_as(NULL);
}

/* The two are exchanged where that can be: a file that is renamed over another ext4 writes to the disk at once, which
 * takes longer than all the rest and slows down who reads it next. */
static int take_place(const char *beside, const char *target) {
  if (syscall(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, target, EXCHANGE) == 0) return unlink(beside);
  return rename(beside, target);
}

/* Returns errno: what it has come to, given what it had come to. */
static int end_write(struct job *j, int error) {
  struct writing *w = j->writing;
  int failed = act_as(&w->who);
  if (!error) error = failed;
  if (!error && fchmod(j->file, w->mode) < 0) error = errno;
  if (!error && *w->target && take_place(w->beside, w->target) < 0) error = errno;
  if (error && *w->beside) unlink(w->beside);
  act_as(NULL);
  return error;
}

void file_done(struct job *j, int error) {
  uint32_t e = j->writing ? end_write(j, error) : error;
  if (j->writing) let_go(j->writing->old);
  send_frame(j->id, 'F', &e, 4);
  forget(j);
}

/* A short private file, in one go. Returns errno. */
int write_small(const struct who *who, char *path, const char *data, size_t len) {
  int fd = -1, error = act_as(who);
  if (!error && (fd = open_to_write(path, O_CREAT, 0600)) < 0 && errno == ENOENT && !(error = make_parents(path, 0700)))
    fd = open_to_write(path, O_CREAT, 0600);
  if (!error && !(error = fd < 0 ? errno : check(fd, 1)) && ftruncate(fd, 0) < 0) error = errno;
  while (len && !error) {
    ssize_t n = write(fd, data, len);
    if (n < 0 && errno != EINTR) error = errno;
    if (n > 0) data += n, len -= n;
  }
  if (fd >= 0) close(fd);
  act_as(NULL);
  return error;
}

void make_directory(struct job *j, const struct who *who, uint32_t mode, char *path) {
  struct stat s;
  int error = act_as(who);
  if (!error) error = make_parents(path, mode);
  if (!error && mkdir(path, mode) < 0) error = errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode) ? 0 : errno;
  act_as(NULL);
  file_done(j, error);
}

void begin_read(struct job *j, const struct who *who, uint64_t max, const char *path) {
  struct stat s;
  j->state = READING;
  j->left = max;
  int error = act_as(who);
  if (!error) j->file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (!error) error = j->file < 0 ? errno : check(j->file, 0);
  act_as(NULL);
  if (!error && fstat(j->file, &s) == 0 && (uint64_t)s.st_size > max) error = EFBIG;
  if (error) file_done(j, error);
}

void go_on_reading(struct job *j) {
  static char buffer[CHUNK];
  while (out_pending() < 4 * CHUNK) {
    ssize_t n = read(j->file, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || (uint64_t)n > j->left) {
      file_done(j, n < 0 ? errno : n ? EFBIG : 0);
      return;
    }
    j->left -= n;
    send_frame(j->id, 'O', buffer, n);
  }
}

void take_data(struct job *j, const char *data, size_t len) {
  if (j->file < 0 && !j->failed && (j->file = memfd_create("stdin", MFD_CLOEXEC)) < 0) j->failed = errno;
  while (len && !j->failed) {
    ssize_t n = write(j->file, data, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) j->failed = errno;
    else data += n, len -= n;
  }
}
