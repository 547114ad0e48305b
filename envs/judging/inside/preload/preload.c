/* What test.sh starts as root, however it does that (timeout, env, find -exec, a program that it has just compiled),
 * runs as nobody unless it is a program that the image came with.
 *
 * This is loaded into every dynamic program below test.sh and stands before the C library's exec functions. A program
 * below the working directory, or one that has changed since the verifier's sandbox was made, is judged code: it
 * is handed to its wrapper, or to `judged`. So is a shell that runs such a file as a script, and whatever has
 * a wrapper and is called past it. Needs no C library of its own, so that it fits glibc and musl of any version.
 * Allocates nothing: after a vfork the parent's memory is ours too.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SELF "/verifier/preload.so"
#define BIN "/verifier/bin/"
#define OWN_CALL "VERIFIER_OWN_CALL=" /* set by a wrapper for the one program that it runs as root */

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
  return syscall(SYS_statx, fd, path, fd < 0 ? 0 : AT_EMPTY_PATH, STATX_CTIME | STATX_MTIME, s);
}

/* Whether the file is a program or script that judged code may have made. */
static int is_judged(const char *path) {
  char link[32] = "/proc/self/fd/", real[4096], workdir[4096];
  struct statx file, start;
  int fd = syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
  if (fd < 0) return 0; /* there is nothing to run */
  size_t at = strlen(link);
  for (int scale = 100000000, begun = 0; scale; scale /= 10)
    if ((begun |= fd / scale) || scale == 1) link[at++] = '0' + fd / scale % 10;
  link[at] = 0;
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, real, sizeof real - 1);
  int known = n > 0 && look(fd, "", &file) == 0;
  syscall(SYS_close, fd);
  if (!known) return 1;
  real[n] = 0;
  if (below(real, "/verifier")) return 0;
  n = syscall(SYS_readlinkat, AT_FDCWD, "/verifier/workdir", workdir, sizeof workdir - 1);
  workdir[n > 0 ? n : 0] = 0;
  if (below(real, workdir) || look(AT_FDCWD, "/verifier/since", &start) < 0) return 1;
  /* In /tests nobody else may write, and a script there may have been made executable. */
  struct statx_timestamp when = below(real, "/tests") ? file.stx_mtime : file.stx_ctime, since = start.stx_ctime;
  return when.tv_sec > since.tv_sec || (when.tv_sec == since.tv_sec && when.tv_nsec >= since.tv_nsec);
}

static int is_shell(const char *name) { return !strcmp(name, "sh") || !strcmp(name, "bash") || !strcmp(name, "dash"); }

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

/* A call of exec and what becomes of it: room for three more arguments and one more variable. */
struct call {
  const char *path, **argv, **env;
  char place[256];
};

static size_t length(char *const list[]) {
  size_t n = 0;
  while (list && list[n]) n++;
  return n;
}

static int is_one_of(const char *word, const char *words) {
  for (size_t n = strlen(word); (words = strstr(words, word)); words += n)
    if (words[-1] == ' ' && words[n] == ' ') return 1;
  return 0;
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

/* Whether what `timeout` is to run is a path of judged code. */
static int times_judged(char *const argv[]) {
  size_t i = argv[0] != NULL;
  while (argv[i] && argv[i][0] == '-') i += is_one_of(argv[i], " -k -s --kill-after --signal ") && argv[i + 1] ? 2 : 1;
  return argv[i] && argv[i + 1] && strchr(argv[i + 1], '/') && is_judged(argv[i + 1]);
}

static void decide(struct call *c, const char *path, char *const argv[], char *const envp[]) {
  size_t n = 0, kept = 0;
  int root = syscall(SYS_geteuid) == 0, own = 0;
  for (size_t i = 0; envp && envp[i]; i++) {
    if (starts(envp[i], OWN_CALL)) own = 1;
    else if (strcmp(envp[i], "LD_PRELOAD=" SELF)) c->env[kept++] = envp[i];
  }
  if (root) c->env[kept++] = "LD_PRELOAD=" SELF;
  c->env[kept] = NULL;
  c->path = path;
  int there = syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0; /* a search through PATH tries them all */
  if (root && !own && there && !starts(path, "/verifier/")) {
    char script[64];
    const char *name = base(path);
    interpreter(path, script, sizeof script);
    if (is_judged(path)) c->path = is_shell(name) || !wrapper_of(name, c->place, sizeof c->place) ? BIN "judged" : c->place;
    else if (is_shell(name)) c->path = script_of(argv) && is_judged(script_of(argv)) ? BIN "judged" : path;
    else if (!strcmp(name, "timeout") && times_judged(argv)) c->path = BIN "judged"; /* root may not kill it */
    else if (wrapper_of(name, c->place, sizeof c->place)) c->path = c->place;
    else if (script[0] && !is_shell(script) && wrapper_of(script, c->place, sizeof c->place)) c->path = BIN "judged";
  }
  if (c->path != path) {
    c->argv[n++] = c->path;
    c->argv[n++] = "/verifier/call";
    c->argv[n++] = path;
    if (argv[0]) argv++;
  }
  while (*argv) c->argv[n++] = *argv++;
  c->argv[n] = NULL;
}

#define DECIDE(c, path, argv, envp)                                                         \
  struct call c;                                                                            \
  c.argv = alloca((length(argv) + 4) * sizeof *c.argv);                                     \
  c.env = alloca((length(envp) + 2) * sizeof *c.env);                                       \
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
