/* Calls every function of the preload library in a child, with what may stress it; linked with the library's sources and sanitizers.
 * As root nothing is there to hand programs to, so that most calls fail; the exit status says whether one crashed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *argv[] = {"sh", "-o", "errexit", "--rcfile", "x", "script", NULL};
static char *nothing[] = {NULL};
static char *timed[] = {"timeout", "-k", "1", "--signal", "TERM", "5", "./script", NULL};
static char *env[] = {"PATH=/nowhere::/usr/bin:/bin", "LD_PRELOAD=/judge/preload.so", "A=b", NULL};

static void call(int which, const char *name) {
  int fd;
  pid_t pid;
  switch (which) {
    case 0: execve(name, argv, env); break;
    case 1: execve(name, nothing, NULL); break;
    case 2: execv(name, argv); break;
    case 3: execvp(name, timed); break;
    case 4: execvpe(name, argv, env); break;
    case 5: execl(name, name, "one", "two", (char *)NULL); break;
    case 6: execlp(name, name, (char *)NULL); break;
    case 7: execle(name, name, "one", (char *)NULL, env); break;
    case 8: execveat(AT_FDCWD, name, argv, env, 0); break;
    case 9:
      fd = open(name, O_RDONLY | O_CLOEXEC);
      if (fd >= 0) fexecve(fd, argv, env);
      break;
    case 10:
      if (!posix_spawn(&pid, name, NULL, NULL, argv, env)) waitpid(pid, NULL, 0);
      break;
    case 11:
      if (!posix_spawnp(&pid, name, NULL, NULL, argv, env)) waitpid(pid, NULL, 0);
      break;
  }
}

int main(int argc, char **names) {
  for (int name = 1; name < argc; name++)
    for (int which = 0; which < 12; which++) {
      int how = 0;
      pid_t child = fork();
      if (!child) {
        call(which, names[name]);
        _exit(0);
      }
      waitpid(child, &how, 0);
      if (WIFSIGNALED(how) || WEXITSTATUS(how) == 99) {
        fprintf(stderr, "call %d of %.60s ended with %d\n", which, names[name], how);
        return 1;
      }
    }
  return 0;
}
