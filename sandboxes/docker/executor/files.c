/* Files: read, written and made as the user that the request names. */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PROC_MAGIC = 0x9fa0 };

void act_as(uint32_t uid, uint32_t gid) {
  static uint32_t now_uid, now_gid; /* the kernel makes new credentials even for the same ids */
  if (gid != now_gid) setfsgid(now_gid = gid);
  if (uid != now_uid) setfsuid(now_uid = uid);
}

void file_done(struct job *j, int error) {
  uint32_t e = error;
  send_frame(j->id, 'F', &e, 4);
  forget(j);
}

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

static int open_to_write(const char *path, mode_t mode) {
  return open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
}

void begin_write(struct job *j, uint32_t uid, uint32_t gid, uint32_t mode, char *path) {
  j->state = WRITING;
  act_as(uid, gid);
  j->failed = make_parents(path, 0755);
  if (!j->failed) {
    j->file = open_to_write(path, mode);
    j->failed = j->file < 0 ? errno : check(j->file, 1);
  }
  if (!j->failed && (ftruncate(j->file, 0) < 0 || fchmod(j->file, mode) < 0)) j->failed = errno;
  act_as(0, 0);
}

/* A short private file, in one go. */
int write_small(uint32_t uid, uint32_t gid, char *path, const char *data, size_t len) {
  act_as(uid, gid);
  int fd = open_to_write(path, 0600), error = 0;
  if (fd < 0 && errno == ENOENT && !(error = make_parents(path, 0700))) fd = open_to_write(path, 0600);
  if (!error && !(error = fd < 0 ? errno : check(fd, 1)) && ftruncate(fd, 0) < 0) error = errno;
  while (len && !error) {
    ssize_t n = write(fd, data, len);
    if (n < 0 && errno != EINTR) error = errno;
    if (n > 0) data += n, len -= n;
  }
  if (fd >= 0) close(fd);
  act_as(0, 0);
  return error;
}

void make_directory(struct job *j, uint32_t uid, uint32_t gid, uint32_t mode, char *path) {
  struct stat s;
  act_as(uid, gid);
  int error = make_parents(path, mode);
  if (!error && mkdir(path, mode) < 0) error = errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode) ? 0 : errno;
  act_as(0, 0);
  file_done(j, error);
}

void begin_read(struct job *j, uint32_t uid, uint32_t gid, uint64_t max, const char *path) {
  struct stat s;
  j->state = READING;
  j->left = max;
  act_as(uid, gid);
  j->file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  int error = j->file < 0 ? errno : check(j->file, 0);
  act_as(0, 0);
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
