/* What test.sh starts as root, however it does that (timeout, env, find -exec, a program that it has just compiled),
 * runs as nobody unless it is a program of the image that obeys nothing which it reads (`INERT`), or one of /tests.
 *
 * This is loaded into every dynamic program below test.sh and stands before the C library's exec functions. A program
 * below the working directory, or one that has changed since the verifier's sandbox was made, is judged code: it
 * is handed to its wrapper, or to `judged`. So is whatever is not known to be inert, since it may interpret what it
 * finds in the working directory (a Makefile, a script, its configuration). Shells go to their wrapper, unless they run
 * a script of the task or the image. Nothing of root's is told by its environment to load what is judged, writes the
 * verifier's files through a link, or reads by a link of judged code what that can't read. Needs no C library of its own, so that it fits glibc and musl of any version.
 * Allocates nothing: after a vfork the parent's memory is ours too.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"

#define SELF "/verifier/preload.so"
#define BIN "/verifier/bin/"
#define FUNCTIONS "BASH_ENV=/verifier/functions.sh"
#define OWN_CALL "VERIFIER_OWN_CALL=" /* set by a wrapper for the one program that it runs as root */

/* Programs that run nothing of what they read, or run it by exec alone. What is not among them is judged. */
static const char INERT[] =
    " [ arch b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date dd df dir dirname du echo"
    " env expand expr factor false fmt fold groups head hostid hostname id install join link ln logname ls md5sum mkdir"
    " mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk pr printenv printf ptx pwd readlink realpath rm"
    " rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac"
    " tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink uptime users vdir wc who whoami yes"
    " cmp diff diff3 sdiff find xargs grep egrep fgrep rgrep zgrep gzip gunzip zcat zcmp zdiff bzip2 bunzip2 bzcat xz unxz"
    " xzcat lzma unlzma zstd unzstd zstdcat tar unzip zip zipinfo file patch git jq curl wget which whereis ps pgrep pidof"
    " kill killall pkill free ss netstat lsof ip ifconfig ping nc bc column hexdump xxd strings nm objdump readelf size ar as"
    " ld ranlib strip gcc g++ cc c++ cpp cc1 cc1plus collect2 lto-wrapper lto1 clang clang++ su runuser setpriv gosu su-exec"
    " chroot setsid flock ionice taskset chrt prlimit time tput clear locale getconf getent getopt iconv ldconfig apt apt-get"
    " apt-cache dpkg dpkg-deb dpkg-query apk yum dnf microdnf rpm ssh-keygen useradd usermod groupadd chpasswd mount umount"
    " sysctl rev tree uuidgen logger lscpu mountpoint cal ";

/* What a wrapper runs as root itself, where it is the image's. */
static const char ACTING[] = " cp mv ln install awk gawk mawk nawk sed curl wget apt apt-get apk ";

extern char **environ;

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static int below(const char *path, const char *folder) {
  size_t n = strlen(folder);
  return n && starts(path, folder) && (path[n] == '/' || !path[n]);
}

static const char *base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int look(int fd, const char *path, struct statx *s) {
  return syscall(SYS_statx, fd, path, fd < 0 ? 0 : AT_EMPTY_PATH, STATX_CTIME | STATX_MTIME | STATX_UID | STATX_MODE | STATX_NLINK | STATX_INO,
                 s);
}

/* The path behind a file descriptor; "" where there is none. */
static void path_of(int fd, char *real, size_t size) {
  char link[32] = "/proc/self/fd/";
  size_t at = strlen(link);
  for (int scale = 100000000, begun = 0; scale; scale /= 10)
    if ((begun |= fd / scale) || scale == 1) link[at++] = '0' + fd / scale % 10;
  link[at] = 0;
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, real, size - 1);
  real[n > 0 ? n : 0] = 0;
}

static void read_workdir(char *workdir, size_t size) {
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

enum { OF_IMAGE, OF_TESTS, JUDGED };

/* Whose program or script a file is: JUDGED where judged code may have made it. */
static int whose(const char *path) {
  char real[4096], workdir[4096];
  struct statx file, start;
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
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

static int is_judged(const char *path) { return whose(path) == JUDGED; }

static int is_one_of(const char *word, const char *words) {
  for (size_t n = strlen(word); n && (words = strstr(words, word)); words += n)
    if (words[-1] == ' ' && words[n] == ' ') return 1;
  return 0;
}

static int is_shell(const char *name) { return is_one_of(name, " sh bash dash ash ksh zsh "); }

static int wrapper_of(const char *name, char *place, size_t size) {
  if (strlen(BIN) + strlen(name) >= size) return 0;
  strcpy(place, BIN);
  strcat(place, name);
  return syscall(SYS_faccessat, AT_FDCWD, place, X_OK) == 0;
}

/* The name of the interpreter that a script's first line gives, "" where there is none. */
static void interpreter(const char *path, char *name, size_t size) {
  char line[256];
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  ssize_t n = fd < 0 ? 0 : syscall(SYS_read, fd, line, sizeof line - 1);
  if (fd >= 0) syscall(SYS_close, fd);
  line[n > 0 ? n : 0] = 0;
  line[strcspn(line, "\n")] = 0;
  name[0] = 0;
  if (!starts(line, "#!")) return;
  for (char *word = line + 2;;) {
    word += strspn(word, " \t");
    size_t length = strcspn(word, " \t");
    char *next = word + length + (word[length] != 0);
    word[length] = 0;
    if (!length || strlen(base(word)) >= size) return;
    strcpy(name, base(word));
    if (strcmp(name, "env")) return;
    word = next + (starts(next, "-S ") ? 3 : 0);
  }
}

/* A call of exec and what becomes of it: room for three more arguments, three more variables, and the arguments as such. */
struct call {
  const char *path, **argv, **env;
  char place[256], libraries[4096], *room;
};

static size_t length(char *const list[]) {
  size_t n = 0;
  while (list && list[n]) n++;
  return n;
}

/* The script that a shell is to run, NULL for none. */
static const char *script_of(char *const argv[]) {
  for (size_t i = argv[0] != NULL; argv[i] && argv[i - 1]; i++) {
    size_t n = strlen(argv[i]);
    if ((argv[i][0] != '-' && argv[i][0] != '+') || !argv[i][1]) return argv[i];
    if (argv[i][1] != '-' && strchr(argv[i], 'c')) return NULL;
    int takes = argv[i][1] == '-' ? is_one_of(argv[i], " --rcfile --init-file ") : strchr("oO", argv[i][n - 1]) != NULL;
    if (takes && argv[i + 1]) i++;
  }
  return NULL;
}

/* Whether a shell is to run a script of judged code. */
static int runs_judged(const char *path, char *const argv[]) {
  const char *file = is_shell(base(path)) ? script_of(argv) : NULL;
  return file && is_judged(file);
}

/* Whether what `timeout` is to run is a path of judged code. */
static int times_judged(char *const argv[]) {
  size_t i = argv[0] != NULL;
  while (argv[i] && argv[i][0] == '-') i += is_one_of(argv[i], " -k -s --kill-after --signal ") && argv[i + 1] ? 2 : 1;
  return argv[i] && argv[i + 1] && strchr(argv[i + 1], '/') && is_judged(argv[i + 1]);
}

/* Whether an argument reads like an option and is the name of a file here: `*` may have found it in what is judged. */
static int has_planted_option(char *const argv[]) {
  char here[4096], workdir[4096];
  for (size_t i = 1; argv[0] && argv[i]; i++)
    if (argv[i][0] == '-' && argv[i][1] && syscall(SYS_faccessat, AT_FDCWD, argv[i], F_OK) == 0) {
      read_workdir(workdir, sizeof workdir);
      if (syscall(SYS_getcwd, here, sizeof here) > 0 && below(here, workdir)) return 1;
    }
  return 0;
}

/* The image's own program of a name; 0 where it has none. */
static int standard(const char *name, char *place, size_t size) {
  static const char *const folders[] = {"/usr/local/bin/", "/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (strlen(folders[i]) + strlen(name) >= size) return 0;
    strcpy(place, folders[i]);
    strcat(place, name);
    if (syscall(SYS_faccessat, AT_FDCWD, place, X_OK) == 0 && whose(place) == OF_IMAGE) return 1;
  }
  return 0;
}

/* Whether a variable has a program load or run what it names, or write where it says. */
static int is_setting(const char *variable) {
  static const char *const names[] = {"LD_", "BASH_FUNC_", "GLIBC_TUNABLES=", "GCONV_PATH=", "LOCPATH=", "PS4=", "SHELLOPTS=",
    "BASHOPTS=", "TAR_OPTIONS=", "CURL_HOME=", "WGETRC=", "GIT_DIR=", "GIT_WORK_TREE=", "GIT_CONFIG_", "PERL5", "PYTHONHOME=",
    "PYTHONPYCACHEPREFIX=", "PYTHONPLATLIBDIR=", "PYTHONUSERBASE=", "PYTHONSTARTUP=", OWN_CALL, HIDDEN};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (starts(variable, names[i])) return 1;
  return 0;
}

/* What root's program is told by its environment, without what would load or run judged code before its first line. */
static size_t keep_harmless(struct call *c, char *const envp[]) {
  char workdir[4096];
  size_t kept = 0;
  int shell = 0;
  read_workdir(workdir, sizeof workdir);
  for (size_t i = 0; envp && envp[i]; i++) {
    if (starts(envp[i], "LD_LIBRARY_PATH=") && strlen(envp[i]) < sizeof c->libraries) { /* for what becomes nobody */
      strcpy(c->libraries, "JUDGED_LIBRARIES=");
      strncat(c->libraries, envp[i] + 16, sizeof c->libraries - 18);
      c->env[kept++] = c->libraries;
    } else if (starts(envp[i], "BASH_ENV=") || starts(envp[i], "ENV=")) {
      if (!strcmp(envp[i], FUNCTIONS) && ++shell) c->env[kept++] = envp[i];
    } else if (starts(envp[i], "HOME=")) { /* of which root's programs read their settings */
      if (!below(envp[i] + 5, workdir) && !below(envp[i] + 5, "/tmp")) c->env[kept++] = envp[i];
    } else if (!is_setting(envp[i])) {
      c->env[kept++] = envp[i];
    }
  }
  c->env[kept++] = "LD_PRELOAD=" SELF;
  if (!shell) c->env[kept++] = FUNCTIONS; /* or a bash that is given no environment would source what is judged */
  return kept;
}

static const char *as_judged(struct call *c, const char *path, char *const argv[]) {
  char script[64];
  const char *name = base(path);
  int from = whose(path);
  interpreter(path, script, sizeof script);
  if (from == JUDGED && argv[0] && !strchr(argv[0], '/') && is_one_of(name, INERT) &&
      standard(name, c->place, sizeof c->place))
    return has_planted_option(argv) ? BIN "judged" : c->place; /* it was looked for in PATH, and what is judged came first */
  int wrapped = wrapper_of(name, c->place, sizeof c->place);
  if (is_shell(name)) {
    if (from == JUDGED || runs_judged(path, argv)) return BIN "judged";
    return script_of(argv) || !wrapped ? path : c->place;
  }
  if (from == JUDGED) return wrapped && !is_one_of(name, ACTING) ? c->place : BIN "judged";
  if (!strcmp(name, "timeout") && times_judged(argv)) return BIN "judged"; /* root may not kill it */
  if (wrapped) return c->place;
  if (from == OF_TESTS && (!*script || is_shell(script))) return path;
  if (script[0] && !is_shell(script) && wrapper_of(script, c->place, sizeof c->place)) return BIN "judged";
  return from == OF_TESTS || (is_one_of(name, INERT) && !has_planted_option(argv)) ? path : BIN "judged";
}

/* Whether what a program of root's is called with may say what is expected. `pkill -f` finds the others, as servers. */
static int is_secretive(const char *path, const char *const *argv) {
  const char *name = base(path);
  if (is_one_of(name, INERT) || is_one_of(name, ACTING) || is_shell(name)) return 1;
  for (size_t i = 1; argv[i]; i++)
    if (!strcmp(argv[i], "-c") && argv[i + 1] && strpbrk(argv[i + 1], " (;\n") && strcmp(path, BIN "judged")) return 1;
  return whose(path) == OF_TESTS && !starts(path, BIN);
}

static void decide(struct call *c, const char *path, char *const argv[], char *const envp[]) {
  size_t n = 0, kept = 0;
  int root = syscall(SYS_geteuid) == 0;
  const char *own = NULL;
  for (size_t i = 0; envp && envp[i]; i++) {
    if (starts(envp[i], OWN_CALL)) own = envp[i] + strlen(OWN_CALL);
    else if (!root && strcmp(envp[i], "LD_PRELOAD=" SELF)) c->env[kept++] = envp[i];
  }
  if (root) kept = keep_harmless(c, envp);
  c->env[kept] = NULL;
  c->path = path;
  int there = syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0; /* a search through PATH tries them all */
  if (root && there && !starts(path, "/verifier/")) {
    if (!own) c->path = as_judged(c, path, argv);
    else if (is_judged(path) || (strcmp(own, "read") && runs_judged(path, argv))) c->path = BIN "judged";
  }
  if (starts(c->path, "/verifier/") && c->path != path) {
    c->argv[n++] = c->path;
    c->argv[n++] = "/verifier/call";
    c->argv[n++] = path;
    if (argv[0]) argv++;
  }
  while (*argv) c->argv[n++] = *argv++;
  c->argv[n] = NULL;
  if (root && there && c->room && is_secretive(c->path, c->argv)) hide(c->path, c->argv, c->env, kept, c->room);
}

#define DECIDE(c, path, argv, envp)                                                         \
  struct call c;                                                                            \
  size_t words_n = length(argv), room = room_for(argv);                                     \
  c.argv = alloca((words_n + 4) * sizeof *c.argv);                                          \
  c.env = alloca((length(envp) + words_n + 6) * sizeof *c.env);                             \
  c.room = room ? alloca(room + 64 + strlen(path)) : NULL;                             \
  decide(&c, path, argv, envp)

int execve(const char *path, char *const argv[], char *const envp[]) {
  DECIDE(c, path, argv, envp);
  return syscall(SYS_execve, c.path, c.argv, c.env);
}

static const char *search_path(void) {
  for (size_t i = 0; environ && environ[i]; i++)
    if (starts(environ[i], "PATH=")) return environ[i] + 5;
  return "/usr/local/bin:/usr/bin:/bin";
}

static int join(char *place, size_t size, const char *folder, size_t n, const char *name) {
  if (n + strlen(name) + 2 > size) return 0;
  memcpy(place, folder, n);
  place[n] = '/';
  strcpy(place + n + (n > 0), name);
  return 1;
}

/* Runs a program, or, as the C library does, a script without an interpreter's name by the shell. */
static void run(const char *path, char *const argv[], char *const envp[]) {
  execve(path, argv, envp);
  if (errno != ENOEXEC) return;
  size_t n = length(argv);
  const char **call = alloca((n + 3) * sizeof *call);
  call[0] = "sh";
  call[1] = path;
  call[2] = NULL;
  for (size_t i = 1; i <= n; i++) call[i + 1] = argv[i];
  execve("/bin/sh", (char *const *)call, envp);
}

int execvpe(const char *name, char *const argv[], char *const envp[]) {
  char place[4096];
  int denied = 0;
  if (strchr(name, '/') || !*name) {
    run(name, argv, envp);
    return -1;
  }
  for (const char *path = search_path();; path++) {
    size_t n = strcspn(path, ":");
    errno = ENAMETOOLONG;
    if (join(place, sizeof place, path, n, name)) run(place, argv, envp);
    if (errno == EACCES) denied = 1;
    else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG) return -1;
    path += n;
    if (!*path) break;
  }
  errno = denied ? EACCES : ENOENT;
  return -1;
}

typedef int spawn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                  char *const[]);

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                char *const argv[], char *const envp[]) {
  DECIDE(c, path, argv, envp);
  spawn *real = (spawn *)dlsym(RTLD_NEXT, "posix_spawn");
  return real ? real(pid, c.path, actions, how, (char *const *)c.argv, (char *const *)c.env) : ENOSYS;
}

int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                 char *const argv[], char *const envp[]) {
  char place[4096];
  for (const char *path = search_path(); !strchr(name, '/'); path++) {
    size_t n = strcspn(path, ":");
    if (join(place, sizeof place, path, n, name) && syscall(SYS_faccessat, AT_FDCWD, place, X_OK) == 0)
      return posix_spawn(pid, place, actions, how, argv, envp);
    path += n;
    if (!*path) return ENOENT;
  }
  return posix_spawn(pid, name, actions, how, argv, envp);
}

int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

int execvp(const char *name, char *const argv[]) { return execvpe(name, argv, environ); }

int execveat(int folder, const char *path, char *const argv[], char *const envp[], int flags) {
  if (syscall(SYS_geteuid) || path[0] == '/') return execve(path, argv, envp);
  (void)folder, (void)flags;
  errno = ENOSYS;
  return -1;
}

int fexecve(int fd, char *const argv[], char *const envp[]) {
  if (syscall(SYS_geteuid)) return syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
  errno = ENOSYS;
  return -1;
}

#define COLLECT(last)                                                                       \
  va_list list;                                                                             \
  size_t n = 1;                                                                             \
  va_start(list, first);                                                                    \
  while (va_arg(list, const char *)) n++;                                                   \
  va_end(list);                                                                             \
  const char **argv = alloca((n + 1) * sizeof *argv);                                       \
  va_start(list, first);                                                                    \
  argv[0] = first;                                                                          \
  for (size_t i = 1; i <= n; i++) argv[i] = va_arg(list, const char *);                     \
  last;                                                                                     \
  va_end(list)

int execl(const char *path, const char *first, ...) {
  COLLECT();
  return execve(path, (char *const *)argv, environ);
}

int execlp(const char *name, const char *first, ...) {
  COLLECT();
  return execvpe(name, (char *const *)argv, environ);
}

int execle(const char *path, const char *first, ...) {
  COLLECT(char *const *envp = va_arg(list, char *const *));
  return execve(path, (char *const *)argv, envp);
}


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

/* The name of the program that this is. */
static const char *program(char *place, size_t size) {
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", place, size - 1);
  place[n > 0 ? n : 0] = 0;
  return base(place);
}

/* Calls a function with each word that this program is called with until it returns true; returns whether it did. */
static int any_word(int (*is)(const char *, const void *), const void *given) {
  for (size_t i = 0; i < word_count; i++)
    if (is(words[i], given)) return 1;
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
  return look(AT_FDCWD, value ? value + 1 : word, &other) == 0 && other.stx_ino == file->stx_ino &&
         other.stx_dev_major == file->stx_dev_major && other.stx_dev_minor == file->stx_dev_minor;
}

/* Whether a program writes, where what it unpacks or checks out says so, what is the verifier's or the image's own. */
static int overreaches(const char *path, int ours) {
  static const char *const loaders[] = {"/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", NULL};
  char place[4096], workdir[4096];
  const char *name = program(place, sizeof place);
  if (!is_one_of(name, " git tar unzip dpkg dpkg-deb rpm patch cpio rsync curl wget bsdtar ")) return 0;
  if (ours) {
    int named = any_word(names_ours, NULL);
    for (size_t i = 0; environ && environ[i]; i++) named |= starts(environ[i], "PWD=") && names_ours(environ[i], NULL);
    return !named || starts(base(path), "reward.");
  }
  if (!starts(name, "dpkg") || strlen(path) >= sizeof place || !any_word(is_judged_package, NULL)) return 0;
  strcpy(place, path);
  char *end = strstr(place, ".dpkg-new");
  if (end) *end = 0;
  read_workdir(workdir, sizeof workdir);
  return is_below_any(place, loaders) ||
         (end && syscall(SYS_faccessat, AT_FDCWD, place, F_OK) == 0 && !below(place, workdir) && whose(place) == OF_IMAGE);
}

/* Whether a path that root is to write leads to the verifier's files by a link that judged code may have made. anew: a
 * file of judged code's, where everyone makes files, is removed: root would take for its own what it finds there. */
static int leads_astray(int folder, const char *path, int anew) {
  static const char *const ours[] = {"/logs", "/tests", "/verifier", NULL};
  char real[4096], above[4096];
  struct statx file;
  if (syscall(SYS_geteuid) || starts(path, "/dev/") || starts(path, "/proc/")) return 0;
  if (is_spelled(path, ours)) return overreaches(path, 1);
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
  int theirs = below(real, "/tmp") && look(fd, "", &file) == 0 && file.stx_uid && (file.stx_mode & S_IFMT) == S_IFREG;
  syscall(SYS_close, fd);
  if (theirs && anew) syscall(SYS_unlinkat, AT_FDCWD, real, 0);
  if (is_below_any(real, ours)) return !is_within(folder, path, ours) || overreaches(path, 1);
  return overreaches(path, 0);
}

/* Keeps what root has made below the working directory in its place: judged code may make files there, and take away
 * what is in its way. */
static void hold(int fd) {
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

/* Whether what root has opened to read is none that judged code can read, and is found by a link that it made. */
static int is_planted(int folder, const char *path, int fd) {
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
  if (*real && (*real != '/' || (below(real, "/proc") && !is_spelled(path, proc) && !is_within(folder, path, proc)) || (!file.stx_nlink && (file.stx_mode & S_IFMT) == S_IFREG))) return 1;
  /* A link of the other kind, where the system lets everyone make one. */
  return (file.stx_mode & S_IFMT) == S_IFREG && file.stx_nlink > 1 && !file.stx_uid &&
         !(file.stx_mode & 0044) && is_shared(folder, path);
}

/* Whether to read a path would wait for judged code, which meanwhile looks what it is asked. */
static int is_bait(int folder, const char *path) {
  struct statx file;
  return syscall(SYS_geteuid) == 0 && syscall(SYS_statx, folder, path, 0, STATX_UID | STATX_MODE, &file) == 0 && file.stx_uid &&
         (file.stx_mode & S_IFMT) == S_IFIFO;
}

/* What judged code keeps from others root reads and writes as who that code runs as: root has no right to more than its own. */
static int owner_of_judged(void) {
  int user = 0;
  for (size_t i = 0; environ && environ[i]; i++)
    if (starts(environ[i], "JUDGED_UID="))
      for (const char *digit = environ[i] + 11; *digit >= '0' && *digit <= '9'; digit++) user = user * 10 + *digit - '0';
  return user ? user : 65534;
}

static int may_ask_again(void) { return errno == EACCES && syscall(SYS_geteuid) == 0; }

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
  char place[4096];
  if (syscall(SYS_geteuid) == 0 && is_to_tests(target) &&
      is_one_of(program(place, sizeof place), " cp mv install tar bsdtar unzip cpio rsync git dpkg ")) {
    errno = EACCES;
    return -1;
  }
  return syscall(SYS_symlinkat, target, folder, path);
}

NAMED(symlink, (const char *target, const char *path), make_link(target, AT_FDCWD, path))
NAMED(symlinkat, (const char *target, int folder, const char *path), make_link(target, folder, path))

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

/* As the C library's, which would start its shell unseen. */
int system(const char *command) {
  int status = -1;
  if (!command) return 1;
  pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  while (pid > 0 && waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}
