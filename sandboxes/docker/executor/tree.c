/* Trees of files for an owner that can't reach them from outside: `pack PATH MOST` writes one to standard output, `unpack
 * PATH` makes what standard input says. Both run while nothing else in the container moves.
 *
 * A record, little endian: u8 kind, u32 mode, u32 uid, u32 gid, i64 seconds, u64 size, u16 and u16 the lengths of a name
 * and of a link, then these, then the data. Kinds: f file, d directory, l symbolic link, h another name of an earlier file,
 * p pipe, E the end, whose mode is an errno and whose name the path. */
#include "executor.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 3500, PATH_SIZE = 4096, BUCKETS = 4096 };

struct record {
  char kind;
  uint32_t mode, uid, gid;
  int64_t seconds;
  uint64_t size;
  uint16_t name, link;
} __attribute__((packed));

struct seen {
  struct seen *next;
  dev_t device;
  ino_t inode;
  char name[];
};

static struct seen *known[BUCKETS]; /* files with several names */
static uint64_t left; /* bytes that the tree may still have */
static int top;
static char piece[CHUNK];

static void end(int error, const char *path) {
  struct record r = {.kind = 'E', .mode = error, .name = strlen(path)};
  fwrite(&r, sizeof r, 1, stdout);
  fwrite(path, 1, r.name, stdout);
  exit(fflush(stdout) != 0);
}

/* ---- out ---- */

static void put(char kind, const struct stat *s, const char *name, const char *link, uint64_t size) {
  struct record r = {kind, s->st_mode & 07777, s->st_uid, s->st_gid, s->st_mtim.tv_sec, size, strlen(name), strlen(link)};
  uint64_t cost = sizeof r + r.name + r.link + size;
  if (cost > left) end(EFBIG, name);
  left -= cost;
  fwrite(&r, sizeof r, 1, stdout);
  fwrite(name, 1, r.name, stdout);
  fwrite(link, 1, r.link, stdout);
}

static void put_file(const struct stat *s, int fd, const char *name) {
  uint64_t size = s->st_size;
  put('f', s, name, "", size);
  while (size) {
    ssize_t n = read(fd, piece, size < sizeof piece ? size : sizeof piece);
    if (n <= 0) memset(piece, 0, n = size < sizeof piece ? size : sizeof piece);
    if (fwrite(piece, 1, n, stdout) != (size_t)n) exit(1);
    size -= n;
  }
}

/* Returns the first name of this file; NULL if this is it. */
static const char *earlier(const struct stat *s, const char *name) {
  struct seen **at = &known[(s->st_ino ^ s->st_dev) % BUCKETS];
  for (struct seen *one = *at; one; one = one->next)
    if (one->device == s->st_dev && one->inode == s->st_ino) return one->name;
  struct seen *new = malloc(sizeof *new + strlen(name) + 1);
  if (!new) end(ENOMEM, name);
  *new = (struct seen){*at, s->st_dev, s->st_ino};
  strcpy(new->name, name);
  *at = new;
  return NULL;
}

/* Returns whether it is a directory. path: of it from `top`; name: what it is called. */
static int put_one(const char *path, const char *name) {
  struct stat s;
  char link[PATH_SIZE];
  const char *first;
  if (fstatat(top, path, &s, AT_SYMLINK_NOFOLLOW) < 0) {
    if (errno != ENOENT) end(errno, path);
    return 0;
  }
  if (S_ISDIR(s.st_mode)) {
    if (strlen(path) > DEEPEST) end(ENAMETOOLONG, path);
    put('d', &s, name, "", 0);
  } else if (S_ISLNK(s.st_mode)) {
    ssize_t n = readlinkat(top, path, link, sizeof link - 1);
    if (n < 0) end(errno, path);
    link[n] = 0;
    put('l', &s, name, link, 0);
  } else if (S_ISFIFO(s.st_mode)) {
    put('p', &s, name, "", 0);
  } else if (S_ISREG(s.st_mode)) {
    if (s.st_nlink > 1 && (first = earlier(&s, name))) {
      put('h', &s, name, first, 0);
    } else {
      int fd = openat(top, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      if (fd < 0) end(errno, path);
      put_file(&s, fd, name);
      close(fd);
    }
  }
  return S_ISDIR(s.st_mode);
}

static int is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

static int in_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void put_below(const char *path) {
  char **names = NULL, below[PATH_SIZE + 256];
  size_t n = 0, room = 0;
  int fd = openat(top, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  if (!folder) end(errno, path);
  for (struct dirent *e; (e = readdir(folder));) {
    if (is_dots(e->d_name)) continue;
    if (n == room && !(names = realloc(names, (room = 2 * room + 16) * sizeof *names))) end(ENOMEM, path);
    if (!(names[n++] = strdup(e->d_name))) end(ENOMEM, path);
  }
  closedir(folder);
  if (n) qsort(names, n, sizeof *names, in_order);
  for (size_t i = 0; i < n; i++) {
    if (strlen(path) + strlen(names[i]) + 2 > sizeof below) end(ENAMETOOLONG, path);
    sprintf(below, "%s%s%s", path, *path ? "/" : "", names[i]);
    free(names[i]);
    if (put_one(below, below)) put_below(below);
  }
  free(names);
}

/* path: without a slash at its end where the last name may be a link that is asked for itself. */
void pack(const char *path, uint64_t most) {
  struct stat s;
  left = most;
  if (lstat(path, &s) < 0) end(errno, path);
  if (S_ISDIR(s.st_mode)) {
    top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) end(errno, path);
    put_below("");
  } else {
    top = AT_FDCWD;
    put_one(path, strrchr(path, '/') + 1);
  }
  end(0, "");
}

/* ---- in ---- */

static void get(void *to, size_t size) {
  if (size && fread(to, size, 1, stdin) != 1) end(EPIPE, "");
}

/* Makes the directories above a path; one that is there may be a link to one. */
static void make_above(const char *path) {
  char above[PATH_SIZE];
  struct stat s;
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    memcpy(above, path, slash - path);
    above[slash - path] = 0;
    if (fstatat(top, above, &s, 0) == 0) continue;
    if (errno != ENOENT) end(errno, above);
    if (mkdirat(top, above, 0755) < 0) end(errno == EEXIST ? ENOENT : errno, above); /* a link that leads nowhere */
  }
}

static void dress(const struct record *r, const char *path) {
  if (fchownat(top, path, r->uid, r->gid, AT_SYMLINK_NOFOLLOW) < 0) end(errno, path);
  if (r->kind != 'l' && fchmodat(top, path, r->mode & 07777, 0) < 0) end(errno, path);
}

static void date(const struct record *r, const char *path) {
  struct timespec when[2] = {{r->seconds, 0}, {r->seconds, 0}};
  utimensat(top, path, when, AT_SYMLINK_NOFOLLOW);
}

static void fill(uint64_t size, const char *path) {
  int fd = openat(top, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) end(errno, path);
  while (size) {
    size_t n = size < sizeof piece ? size : sizeof piece;
    get(piece, n);
    for (size_t at = 0; at < n;) {
      ssize_t done = write(fd, piece + at, n - at);
      if (done < 0) end(errno, path);
      at += done;
    }
    size -= n;
  }
  if (close(fd) < 0) end(errno, path);
}

static DIR *look_into(int above, const char *name, const char *path) {
  int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  if (!folder) end(errno, path);
  return folder;
}

/* Removes a directory. What directories in it hold is moved up into it first, so that it may be of any depth. An overlay
 * moves no directory of an image: these are gone into, and are as deep as the image has them. path: for messages. */
static void remove_folder(int above, const char *name, const char *path) {
  char unique[NAME_SIZE];
  for (int left = 1; left;) {
    DIR *folder = look_into(above, name, path);
    left = 0;
    for (struct dirent *e; (e = readdir(folder));) {
      if (is_dots(e->d_name)) continue;
      left = 1;
      if (unlinkat(dirfd(folder), e->d_name, 0) == 0) continue;
      DIR *below = look_into(dirfd(folder), e->d_name, path);
      for (struct dirent *b; (b = readdir(below));) {
        if (is_dots(b->d_name) || unlinkat(dirfd(below), b->d_name, 0) == 0) continue;
        if (!make_name(unique)) end(errno, path);
        if (renameat(dirfd(below), b->d_name, dirfd(folder), unique) == 0) continue;
        if (errno != EXDEV) end(errno, path);
        remove_folder(dirfd(below), b->d_name, path);
      }
      closedir(below);
      if (unlinkat(dirfd(folder), e->d_name, AT_REMOVEDIR) < 0) end(errno, path);
    }
    closedir(folder);
  }
  if (unlinkat(above, name, AT_REMOVEDIR) < 0) end(errno, path);
}

static void make_one(const struct record *r, const char *path, const char *link) {
  struct stat s;
  char made[PATH_SIZE + 32], unique[NAME_SIZE];
  if (r->kind == 'd') {
    if (fstatat(top, path, &s, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(s.st_mode)) unlinkat(top, path, 0);
    if (mkdirat(top, path, 0700) < 0 && errno != EEXIST) end(errno, path);
    dress(r, path);
    return;
  }
  const char *slash = strrchr(path, '/');
  if (!make_name(unique)) end(errno, path); /* what is in the tree may have any name that can be guessed */
  sprintf(made, "%.*s.%s", slash ? (int)(slash + 1 - path) : 0, path, unique);
  if (r->kind == 'f') fill(r->size, made);
  else if (r->kind == 'l' && symlinkat(link, top, made) < 0) end(errno, path);
  else if (r->kind == 'h' && linkat(top, link, top, made, 0) < 0) end(errno, link);
  else if (r->kind == 'p' && mkfifoat(top, made, 0600) < 0) end(errno, path);
  if (r->kind != 'h') dress(r, made), date(r, made);
  if (renameat(top, made, top, path) < 0) {
    if (errno != EISDIR) end(errno, path);
    remove_folder(top, path, path);
    if (renameat(top, made, top, path) < 0) end(errno, path);
  }
  unlinkat(top, made, 0); /* there still if both were one file before */
}

void unpack(const char *path) {
  static char name[PATH_SIZE], link[PATH_SIZE];
  struct { struct record r; char *name; } *folders = NULL;
  size_t n = 0, room = 0;
  umask(0);
  top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (top < 0) end(errno, path);
  for (struct record r; get(&r, sizeof r), r.kind != 'E';) {
    if (r.name >= sizeof name || r.link >= sizeof link) end(ENAMETOOLONG, "");
    get(name, r.name), name[r.name] = 0;
    get(link, r.link), link[r.link] = 0;
    make_above(name);
    make_one(&r, name, link);
    if (r.kind != 'd') continue;
    if (n == room && !(folders = realloc(folders, (room = 2 * room + 16) * sizeof *folders))) end(ENOMEM, name);
    folders[n].r = r;
    if (!(folders[n++].name = strdup(name))) end(ENOMEM, name);
  }
  while (n--) date(&folders[n].r, folders[n].name); /* what was put into them has changed them */
  end(0, "");
}
