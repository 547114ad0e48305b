/* The C library's functions that send signals. Judged code runs as another user, over whose processes root has no right
 * here. What root sends them comes from a process of that user. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reach.h"

static int send_as_judged(pid_t pid, int number) {
  int how = 0, user = owner_of_judged();
  pid_t child = syscall(SYS_clone, 0, 0, 0, 0, 0); /* whose end is no signal, and of which only __WCLONE hears */
  if (child == 0) {
    int failed = syscall(SYS_setresuid, user, user, user) || syscall(SYS_kill, pid, number);
    syscall(SYS_exit_group, failed ? errno : 0);
  }
  while (child > 0 && syscall(SYS_wait4, child, &how, __WCLONE, NULL) < 0)
    if (errno != EINTR) return -1;
  if (child < 0) return -1;
  errno = WIFEXITED(how) ? WEXITSTATUS(how) : EPERM;
  return errno ? -1 : 0;
}

int kill(pid_t pid, int number) {
  int failed = syscall(SYS_kill, pid, number);
  return failed && errno == EPERM && syscall(SYS_geteuid) == 0 ? send_as_judged(pid, number) : failed;
}

int killpg(pid_t group, int number) { return kill(-group, number); }
