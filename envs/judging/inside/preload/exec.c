/* The C library's functions that start programs. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"
#include "calls.h"
#include "whose.h"

extern char **environ;

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
