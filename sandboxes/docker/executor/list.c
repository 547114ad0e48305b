/* What is where: one path, or a directory's entries; links are told as links. As the user that the request names. */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sends u32 mode, u64 size, i64 ns since 1970, name NUL, a link's target NUL. Returns errno. */
static int send_entry(uint32_t id, int directory, const char *path, const char *name) {
  char entry[20 + NAME_MAX + 1 + PATH_MAX + 1], *at = entry + 20;
  struct stat s;
  if (fstatat(directory, path, &s, AT_SYMLINK_NOFOLLOW) < 0) return errno;
  uint32_t mode = s.st_mode;
  uint64_t size = s.st_size;
  int64_t modified = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
  memcpy(entry, &mode, 4);
  memcpy(entry + 4, &size, 8);
  memcpy(entry + 12, &modified, 8);
  size_t length = strnlen(name, NAME_MAX);
  memcpy(at, name, length);
  at += length;
  *at++ = 0;
  ssize_t n = S_ISLNK(s.st_mode) ? readlinkat(directory, path, at, PATH_MAX) : 0;
  if (n < 0) return errno;
  at[n] = 0;
  send_frame(id, 'O', entry, at + n + 1 - entry);
  return 0;
}

void tell_about(struct job *j, uint32_t uid, uint32_t gid, const char *path) {
  act_as(uid, gid);
  int error = send_entry(j->id, AT_FDCWD, path, "");
  act_as(0, 0);
  file_done(j, error);
}

void begin_list(struct job *j, uint32_t uid, uint32_t gid, uint64_t max, const char *path) {
  j->state = LISTING;
  j->left = max;
  j->uid = uid;
  j->gid = gid;
  act_as(uid, gid);
  j->directory = opendir(path);
  int error = errno;
  act_as(0, 0);
  if (!j->directory) file_done(j, error);
}

void go_on_listing(struct job *j) {
  act_as(j->uid, j->gid);
  int error = 0, ended = 0;
  while (!error && !ended && out_pending() < 4 * CHUNK) {
    errno = 0;
    struct dirent *e = readdir(j->directory);
    if (!e) {
      error = errno;
      ended = 1;
    } else if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
      error = j->left ? send_entry(j->id, dirfd(j->directory), e->d_name, e->d_name) : EFBIG;
      if (error == ENOENT) error = 0; /* it has just been removed */
      else j->left--;
    }
  }
  act_as(0, 0);
  if (error || ended) file_done(j, error);
}
