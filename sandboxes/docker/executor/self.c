/* Who process 1 is: a user of its own, that no command can be.
 *
 * What a command's user id allows (signals, limits, priorities, tracing, what lies in /proc) it allows against processes
 * of the same id, so root inside can do nothing to process 1 and to the monitors. What they need beyond that they have as
 * capabilities: to start a command as another user, to kill it. A file is reached as the user that is asked for.
 *
 * Root's commands hold those capabilities that our owner names, of those that our container has. None of them reaches past
 * another user id in what counts here: to trace, to change limits and priorities takes others. Two do: by CAP_KILL monitors
 * can be killed, which is to kill their commands, and stopped, which is undone; by CAP_DAC_OVERRIDE files of theirs in /proc
 * can be written to, of which /proc/1 is mounted for reading alone. */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* linux/capability.h, which a small libc does not bring */
enum { CAP_KILL = 5, CAP_SETGID = 6, CAP_SETUID = 7, CAP_SETPCAP = 8, CAP_VERSION_3 = 0x20080522, CAPABILITIES = 64 };

uint64_t root_keeps;

int nothing = -1; /* /dev/null as it was before a command could put something else in its place */
static uint32_t own; /* OWN_UID, or 0 where that cannot be had */
static int has_file_ids; /* gVisor has none apart from the effective ones */

static int hold_capabilities(uint64_t effective, uint64_t permitted) {
  struct { uint32_t version; int pid; } header = {CAP_VERSION_3, 0};
  uint32_t sets[6] = {effective, permitted, 0, effective >> 32, permitted >> 32, 0}; /* the third: inheritable */
  return syscall(SYS_capset, &header, sets);
}

void drop_capabilities(void) { hold_capabilities(0, 0); }

/* What root's commands are to hold we may take, and have where we act as root: of what concerns files the kernel sees to
 * that. */
static int hold_ours(void) {
  const uint64_t ours = 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID | 1 << CAP_SETPCAP;
  return hold_capabilities(ours, ours | root_keeps);
}

/* From now on nothing here can have other capabilities than these, whatever our container has. */
void bound_capabilities(uint64_t which) {
  for (int i = 0; i < CAPABILITIES; i++)
    if (!(which >> i & 1)) prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
}

/* Where commands can be process 1's user, they hold nothing that would let them trace it. */
static void limit_what_root_keeps(void) {
  for (int i = 0; i < CAPABILITIES; i++)
    if (!is_own_user() || prctl(PR_CAPBSET_READ, i, 0, 0, 0) != 1) root_keeps &= ~(1ULL << i);
}

int is_own_user(void) { return own == OWN_UID; }

/* Process 1 is `own` in every respect: its files in /proc are its own, not root's. Each change of the user makes them
 * root's again, until this is called. */
static void own_what_is_in_proc(void) { prctl(PR_SET_DUMPABLE, is_own_user(), 0, 0, 0); }

/* Takes /dev/null as it is now, which must be what it should. Returns errno. */
int hold_nothing(void) {
  struct stat s;
  int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &s) < 0) return errno;
  if (!S_ISCHR(s.st_mode) || s.st_rdev != makedev(1, 3)) {
    close(fd);
    return ENODEV;
  }
  fcntl(fd, F_SETFL, 0);
  if (nothing >= 0) close(nothing);
  nothing = fd;
  return 0;
}

/* Returns errno. */
int become_own_user(void) {
  int error = hold_nothing();
  if (error) return error;
  prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
  if (setgroups(0, NULL) < 0) return errno;
  if (setresgid(OWN_UID, OWN_UID, OWN_UID) == 0) {
    if (setresuid(OWN_UID, OWN_UID, OWN_UID) == 0) own = OWN_UID;
    else if (setresgid(0, 0, 0) < 0) return errno; /* a user namespace without that id */
  }
  limit_what_root_keeps();
  if (is_own_user() && hold_ours() < 0) return errno;
  has_file_ids = (uint32_t)setfsuid(-1) == own;
  own_what_is_in_proc();
  return 0;
}

/* From now on files are reached as this user; NULL: as ourselves. Returns errno; then as nobody that has rights. */
int act_as(const struct who *who) {
  uint32_t uid = who ? who->uid : own, gid = who ? who->gid : own;
  gid_t groups[GROUPS] = {0};
  size_t n = who ? who->n_groups : 0;
  if (n > GROUPS) return EINVAL;
  if (n) memcpy(groups, who->groups, n * sizeof *groups);
  if (!has_file_ids && geteuid() != own) { /* as ourselves first, who may do what follows */
    if (setresuid(-1, own, -1) < 0) return EPERM;
    hold_ours();
  }
  int failed = setgroups(n, groups) < 0;
  if (has_file_ids) {
    setfsgid(gid);
    setfsuid(uid);
    failed |= (uint32_t)setfsgid(-1) != gid || (uint32_t)setfsuid(-1) != uid;
  } else {
    failed |= setresgid(-1, gid, -1) < 0 || setresuid(-1, uid, -1) < 0;
  }
  if (!who) own_what_is_in_proc();
  return failed ? EPERM : 0;
}
