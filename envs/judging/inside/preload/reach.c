/* Where a path of root's leads, and what root may do there: it writes the verifier's files through no link, and reads by
 * no link of judged code what that can't read. */
#define _GNU_SOURCE
#include "reach.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arguments.h"
#include "whose.h"

extern char **environ;

static int is_below_any(const char *path, const char *const *folders) {
  for (; *folders; folders++)
    if (below(path, *folders)) return 1;
  return 0;
}

/* Whether a path is spelled as one below some folders. */
static int is_spelled(const char *path, const char *const *folders) {
  return is_below_any(path, folders) && !strstr(path, "/../");
}

/* Whether a path is asked for from within some folders. */
static int is_within(int folder, const char *path, const char *const *folders) {
  char here[4096];
  here[0] = 0;
  if (path[0] != '/' && folder != AT_FDCWD) path_of(folder, here, sizeof here);
  else if (path[0] != '/' && syscall(SYS_getcwd, here, sizeof here) <= 0) here[0] = 0;
  return is_below_any(here, folders);
}

/* Calls a function with each word that this program is called with until it returns true; returns whether it did. git
 * puts NULL in the place of words that it has read. */
static int any_word(int (*is)(const char *, const void *), const void *given) {
  for (size_t i = 0; i < word_count; i++)
    if (words[i] && is(words[i], given)) return 1;
  return 0;
}

static int names_ours(const char *word, const void *given) {
  (void)given;
  return strstr(word, "/tests") || strstr(word, "/logs") || strstr(word, "/verifier");
}

static int is_judged_package(const char *word, const void *given) {
  (void)given;
  return *word != '-' && strchr(word, '.') && !below(word, "/var/cache") && syscall(SYS_faccessat, AT_FDCWD, word, F_OK) == 0 &&
         is_judged(word);
}

static int is_same(const char *word, const void *given) {
  const struct statx *file = given;
  struct statx other;
  const char *value = *word == '-' ? strchr(word, '=') : NULL;
  return look(AT_FDCWD, value ? value + 1 : word, &other) == 0 && is_one_file(&other, file);
}

/* Whether a word, or a descriptor, is a file of the task's that is not the one that is to be written. */
static int is_other_of_task(int fd, const char *path, const struct statx *written) {
  struct statx file;
  char real[4096];
  if (look(fd, path, &file) < 0 || (file.stx_mode & S_IFMT) != S_IFREG || is_one_file(&file, written)) return 0;
  if (fd >= 0) path_of(fd, real, sizeof real);
  return whose(fd >= 0 ? real : path) == OF_TESTS;
}

static int is_archive_of_task(const char *word, const void *given) {
  const char *value = *word == '-' ? strchr(word, '=') : NULL;
  return is_other_of_task(-1, value ? value + 1 : word, given);
}

int is_to_go(int folder, const char *path) {
  char place[4096], parent[32] = "/proc/";
  struct statx file;
  if (syscall(SYS_geteuid)) return 0;
  const char *name = program(place, sizeof place);
  int unpacks = is_one_of(name, " tar bsdtar unzip cpio rsync patch "), removes = !strcmp(name, "rm");
  if ((!unpacks && !removes) || whose_at(folder, path) != OF_TESTS) return 0;
  if (removes) {
    write_number(parent + strlen(parent), syscall(SYS_getppid));
    strcat(parent, "/exe");
    return !strcmp(program_of(parent, place, sizeof place), "xargs");
  }
  return syscall(SYS_statx, folder, path, 0, STATX_INO, &file) == 0 && !any_word(is_archive_of_task, &file) &&
         !is_other_of_task(0, "", &file);
}

/* Whether a program writes, where what it unpacks or checks out says so, what is the verifier's or the image's own. */
static int overreaches(int folder, const char *path, int ours) {
  static const char *const loaders[] = {"/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", NULL};
  char place[4096], workdir[4096];
  const char *name = program(place, sizeof place);
  if (!is_one_of(name, " git tar unzip dpkg dpkg-deb rpm patch cpio rsync curl wget bsdtar ")) return 0;
  if (ours) {
    int named = any_word(names_ours, NULL);
    for (size_t i = 0; environ && environ[i]; i++) named |= starts(environ[i], "PWD=") && names_ours(environ[i], NULL);
    return !named || starts(base(path), "reward.") || is_to_go(folder, path);
  }
  if (!starts(name, "dpkg") || strlen(path) >= sizeof place || !any_word(is_judged_package, NULL)) return 0;
  strcpy(place, path);
  char *end = strstr(place, ".dpkg-new");
  if (end) *end = 0;
  read_workdir(workdir, sizeof workdir);
  return is_below_any(place, loaders) || strstr(place, ".pth") || strstr(place, "sitecustomize") || strstr(place, "usercustomize") ||
         (end && syscall(SYS_faccessat, AT_FDCWD, place, F_OK) == 0 && !below(place, workdir) && whose(place) == OF_IMAGE);
}

/* Puts a new file of root's in the place of one that judged code can write, or may have open: root is to write it anew. */
static void replace(const char *real, const struct statx *file) {
  char workdir[4096];
  read_workdir(workdir, sizeof workdir);
  if ((file->stx_mode & S_IFMT) != S_IFREG || (!file->stx_uid && !(file->stx_mode & 0002))) return;
  if ((!below(real, "/tmp") && !below(real, workdir)) || syscall(SYS_unlinkat, AT_FDCWD, real, 0)) return;
  int fd = syscall(SYS_openat, AT_FDCWD, real, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return;
  syscall(SYS_fchmod, fd, (file->stx_mode & 0755) | 0644);
  syscall(SYS_close, fd);
}

int leads_astray(int folder, const char *path, int anew) {
  static const char *const ours[] = {"/logs", "/tests", "/verifier", NULL};
  char real[4096], above[4096];
  struct statx file;
  if (syscall(SYS_geteuid) || starts(path, "/dev/") || starts(path, "/proc/")) return 0;
  if (is_spelled(path, ours)) return overreaches(folder, path, 1);
  int fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC, 0);
  if (fd < 0) {
    fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd >= 0) { /* a link to what is not there yet */
      syscall(SYS_close, fd);
      return 1;
    }
    const char *name = base(path);
    if ((size_t)(name - path) >= sizeof above) return 0;
    memcpy(above, path, name - path);
    above[name - path] = 0;
    if (name == path) strcpy(above, ".");
    fd = syscall(SYS_openat, folder, above, O_PATH | O_CLOEXEC, 0);
    if (fd < 0) return 0;
  }
  path_of(fd, real, sizeof real);
  if (anew && look(fd, "", &file) == 0) replace(real, &file);
  syscall(SYS_close, fd);
  if (is_below_any(real, ours)) return !is_within(folder, path, ours) || overreaches(folder, path, 1);
  return overreaches(folder, path, 0);
}

void hold(int fd) {
  char real[4096], workdir[4096];
  struct statx file;
  if (fd < 0 || syscall(SYS_geteuid) || look(fd, "", &file) < 0 || file.stx_uid || (file.stx_mode & 0002)) return;
  path_of(fd, real, sizeof real);
  read_workdir(workdir, sizeof workdir);
  for (char *slash; below(real, workdir) && (slash = strrchr(real, '/')) && slash != real;) {
    *slash = 0;
    if (below(real, workdir) && look(AT_FDCWD, real, &file) == 0 && (file.stx_mode & 01002) == 0002)
      syscall(SYS_fchmodat, AT_FDCWD, real, (file.stx_mode & 07777) | 01000);
  }
}

/* Whether a link is to the tests, as it is written. */
static int is_to_tests(const char *target) { return strstr(target, "/tests") != NULL || starts(target, "tests"); }

/* Whether a link of root's to the tests is on a path; the tests make such at all. */
static int is_linked_by_root(int folder, const char *path) {
  char part[4096], target[4096];
  struct statx file;
  size_t n = strlen(path);
  if (n >= sizeof part || syscall(SYS_faccessat, AT_FDCWD, "/verifier/links", F_OK)) return 0;
  for (size_t i = 1; i <= n; i++) {
    if (path[i] && path[i] != '/') continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (syscall(SYS_statx, folder, part, AT_SYMLINK_NOFOLLOW, STATX_UID | STATX_MODE, &file) == 0 && !file.stx_uid &&
        (file.stx_mode & S_IFMT) == S_IFLNK) {
      ssize_t length = syscall(SYS_readlinkat, folder, part, target, sizeof target - 1);
      target[length > 0 ? length : 0] = 0;
      if (is_to_tests(target)) return 1;
    }
  }
  return 0;
}

/* Whether a program reads a file of the task's, closed to judged code, that no word of its call names: a source says so. */
static int is_hearsay(int fd) {
  char place[4096];
  struct statx file;
  if (look(fd, "", &file) < 0 || (file.stx_mode & 0004) || (file.stx_mode & S_IFMT) != S_IFREG) return 0;
  const char *name = program(place, sizeof place), *last = strrchr(name, '-');
  int compiles = starts(name, "cc1") || starts(name, "clang") || starts(name, "ld") || starts(name, "cpp") ||
                 is_one_of(name, " as lto1 collect2 jq git ") || (last && (!strcmp(last, "-as") || starts(last, "-ld")));
  return compiles && !any_word(is_same, &file);
}

/* Whether a path leads to where it reads as if it did: no link is on the way. real: where it leads. */
static int is_plain(int folder, const char *path, const char *real) {
  char full[4096];
  size_t n = 0;
  full[0] = 0;
  if (path[0] != '/' && folder != AT_FDCWD) path_of(folder, full, sizeof full);
  else if (path[0] != '/' && syscall(SYS_getcwd, full, sizeof full) <= 0) full[0] = 0;
  n = strlen(full);
  if (n == 1) n = 0; /* the root directory */
  for (const char *part = path; *part;) {
    size_t length = strcspn(part, "/");
    if (length == 2 && !strncmp(part, "..", 2)) {
      while (n && full[--n] != '/') {}
    } else if (length && !(length == 1 && *part == '.')) {
      if (n + length + 2 > sizeof full) return 0;
      full[n++] = '/';
      memcpy(full + n, part, length);
      n += length;
    }
    part += length + (part[length] == '/');
  }
  full[n] = 0;
  return !strcmp(full, real);
}

/* Whether others than root can make files, and so links, where a path is. */
static int is_shared(int folder, const char *path) {
  char above[4096];
  struct statx where;
  size_t n = base(path) - path;
  if (n >= sizeof above) return 1;
  memcpy(above, path, n);
  strcpy(above + n, ".");
  int fd = syscall(SYS_openat, folder, above, O_PATH | O_CLOEXEC, 0);
  int known = fd >= 0 && look(fd, "", &where) == 0;
  if (fd >= 0) syscall(SYS_close, fd);
  return !known || where.stx_uid || (where.stx_mode & 0022);
}

int is_planted(int folder, const char *path, int fd) {
  static const char *const ours[] = {"/tests", "/verifier", NULL}, *const proc[] = {"/proc", NULL};
  char real[4096];
  struct statx file;
  if (fd < 0 || syscall(SYS_geteuid) || starts(path, "/dev/") || starts(path, "/proc/")) return 0;
  if (is_spelled(path, ours)) return is_hearsay(fd);
  path_of(fd, real, sizeof real);
  if (is_below_any(real, ours))
    return is_within(folder, path, ours) || is_plain(folder, path, real) ? is_hearsay(fd) : !is_linked_by_root(folder, path);
  if (look(fd, "", &file) < 0) return 0;
  /* A link to what a program has open, as what it is to compare with, or to what it is called with. */
  int is_open = below(real, "/proc") && !is_spelled(path, proc) && !is_within(folder, path, proc);
  int is_gone = !file.stx_nlink && (file.stx_mode & S_IFMT) == S_IFREG;
  if (*real && (*real != '/' || is_open || is_gone)) return 1;
  /* A link of the other kind, where the system lets everyone make one. */
  return (file.stx_mode & S_IFMT) == S_IFREG && file.stx_nlink > 1 && !file.stx_uid &&
         !(file.stx_mode & 0044) && is_shared(folder, path);
}

int is_bait(int folder, const char *path) {
  struct statx file;
  return syscall(SYS_geteuid) == 0 && syscall(SYS_statx, folder, path, 0, STATX_UID | STATX_MODE, &file) == 0 && file.stx_uid &&
         (file.stx_mode & S_IFMT) == S_IFIFO;
}

/* What judged code keeps from others root reads and writes as who that code runs as: root has no right to more than its own. */
int owner_of_judged(void) {
  char text[16];
  int user = 0;
  read_start("/verifier/uid", text, sizeof text);
  for (const char *digit = text; *digit >= '0' && *digit <= '9'; digit++) user = user * 10 + *digit - '0';
  return user ? user : 65534;
}

int copies_link_to_tests(const char *target) {
  char place[4096];
  return is_to_tests(target) && is_one_of(program(place, sizeof place), " cp mv install tar bsdtar unzip cpio rsync git dpkg ");
}

int unpacks_of_tests(int folder, const char *path) {
  static const char *const ours[] = {"/tests", "/verifier", "/logs", NULL};
  char real[4096], place[4096];
  if (!is_one_of(program(place, sizeof place), " tar bsdtar unzip cpio rsync dpkg dpkg-deb ")) return 0;
  int fd = syscall(SYS_openat, folder, path, O_PATH | O_CLOEXEC | O_NOFOLLOW, 0);
  if (fd < 0) return 0;
  path_of(fd, real, sizeof real);
  syscall(SYS_close, fd);
  return is_below_any(real, ours);
}
