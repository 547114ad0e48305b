/* Starting a command.
 *
 * Each command has a monitor between it and process 1: a "child subreaper" under the same user id as process 1.
 * Whatever the command starts, daemons included, stays a descendant of that monitor, so killing a command
 * is killing the monitor's descendants, and a monitor that has ended proves that all of them have.
 *
 * gVisor has no subreapers; there a daemon becomes a child of process 1, and killing a command also kills the
 * daemons that have come since it began, whoever started them.
 */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int no_subreaper;

/* The ends of the pipes that the command and its monitor hold; control and report are -1 but for a shell. */
struct ends { int input, output, error, status, control, report, terminal; };

static uint16_t u16(const char *p) { uint16_t v; memcpy(&v, p, 2); return v; }

/* Who something is done as, and then a text up to the end. Returns the text, or NULL where it is not well formed. */
const char *parse_who(const char *p, size_t len, struct who *who) {
  if (len < 10 || p[len - 1]) return NULL;
  *who = (struct who){u32(p), u32(p + 4), u16(p + 8), p + 10};
  size_t head = 10 + 4 * (size_t)who->n_groups;
  return head < len ? p + head : NULL;
}

/* The strings stay in `p`. The caller frees `argv`, which holds `env` too. Returns whether it is well formed. */
int parse_command(char *p, size_t len, struct command *c) {
  if (len < 28) return 0;
  *c = (struct command){u32(p), u32(p + 4), {u32(p + 8), u32(p + 12), u16(p + 16), p + 28}, u16(p + 18), u16(p + 20),
                        u16(p + 22), u16(p + 24), u16(p + 26), NULL, NULL, NULL};
  char *s = p + 28 + 4 * (size_t)c->who.n_groups, *end = p + len;
  size_t strings = 1 + c->n_argv + c->n_env;
  char **table = calloc(strings + 2, sizeof *table);
  if (!table || s >= end || end[-1] || !c->n_argv) return 0;
  c->cwd = s;
  s += strlen(s) + 1;
  c->argv = table;
  c->env = table + c->n_argv + 1;
  for (size_t i = 0; i + 1 < strings; i++) {
    if (s >= end) return 0;
    if (i < c->n_argv) c->argv[i] = s;
    else c->env[i - c->n_argv] = s;
    s += strlen(s) + 1;
  }
  return 1;
}

void close_from(int fd) {
  if (syscall(SYS_close_range, fd, ~0U, 0) == 0) return;
  for (; fd < 4096; fd++) close(fd);
}

static void fail(const char *what, const char *which, int error) {
  const char *parts[] = {"sandbox: ", what, " ", which, ": ", strerror(error), "\n"};
  char line[512];
  size_t n = 0;
  for (int i = 0; i < 7; i++)
    for (const char *c = parts[i]; *c && n < sizeof line; c++) line[n++] = *c;
  if (write(2, line, n) < 0) _exit(126);
  _exit(error == ENOENT && *what == 'r' ? 127 : 126);
}

static char **merged_environment(const struct command *c) {
  extern char **environ;
  size_t n = 0;
  while (environ[n]) n++;
  char **all = calloc(n + c->n_env + 1, sizeof *all);
  if (!all) _exit(126);
  memcpy(all, environ, n * sizeof *all);
  for (int i = 0; i < c->n_env; i++) {
    size_t name = strcspn(c->env[i], "=") + 1, k = 0;
    while (k < n && strncmp(all[k], c->env[i], name)) k++;
    all[k] = c->env[i];
    if (k == n) n++;
  }
  return all;
}

/* Streams 0 to 2 for a command; a session's shell has its loop's pipes as 3 and 4 besides. Those of process 1, which
 * lead to our owner, are overwritten or nothing runs. */
static void take_streams(struct ends e) {
  if (e.input < 0) e.input = nothing;
  if (e.control >= 0) {
    e.control = fcntl(e.control, F_DUPFD_CLOEXEC, 16); /* out of the way of what is overwritten next */
    e.report = fcntl(e.report, F_DUPFD_CLOEXEC, 16);
  }
  if (dup2(e.input, 0) < 0 || dup2(e.output, 1) < 0 || dup2(e.error, 2) < 0) _exit(126);
  if (e.control >= 0 && (dup2(e.control, 3) < 0 || dup2(e.report, 4) < 0)) _exit(126);
  close_from(e.control >= 0 ? 5 : 3);
}

static void become_user(const struct who *who) {
  bound_capabilities(root_keeps);
  gid_t groups[GROUPS] = {0};
  if (who->n_groups > GROUPS) fail("set the groups of", "the command", EINVAL);
  if (who->uid == OWN_UID) fail("set the user of", "the command to the sandbox's own", EPERM);
  memcpy(groups, who->groups, who->n_groups * sizeof(gid_t));
  if (setgroups(who->n_groups, groups) < 0 || setresgid(who->gid, who->gid, who->gid) < 0)
    fail("set the groups of", "the command", errno);
  if (setresuid(who->uid, who->uid, who->uid) < 0) fail("set the user of", "the command", errno);
  if (who->uid != 0 || !root_keeps) drop_capabilities(); /* else exec takes away what the bounding set lacks */
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  close_what_is_shared();
}

static void become(const struct command *c, struct ends e) {
  extern char **environ;
  sigset_t none;
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) { /* when memory runs out, a command dies before we do */
    if (write(fd, "1000", 4) < 0) _exit(126);
    close(fd);
  }
  take_streams(e);
  setsid();
  if (e.terminal) ioctl(0, TIOCSCTTY, 0);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  become_user(&c->who);
  if (chdir(c->cwd) < 0) fail("go to", c->cwd, errno);
  environ = merged_environment(c);
  execvp(c->argv[0], c->argv);
  fail("run", c->argv[0], errno);
}

/* Between process 1 and the command: adopts the command's orphans and ends after the last of them. */
static void monitor(const struct command *c, struct ends e) {
  /* Where it should work and does not, a time limit could not reach daemons, so then nothing runs at all. */
  pid_t child = prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 && !no_subreaper ? -1 : fork();
  if (child == 0) become(c, e);
  if (child < 0) {
    int error = errno;
    const char *parts[] = {"sandbox: cannot start a process: ", strerror(error), "\n"};
    for (int i = 0; i < 3; i++)
      if (write(e.error, parts[i], strlen(parts[i])) < 0) _exit(1);
    int words[] = {-error, 126 << 8};
    _exit(write(e.status, words, sizeof words) < 0);
  }
  if (write(e.status, &child, sizeof child) < 0) _exit(1);
  dup2(e.status, 0);
  close_from(1);
  drop_capabilities();
  setsid(); /* else who may write to our files in /proc would set process 1's group of priorities (autogroup) */
  for (;;) {
    int how;
    pid_t pid = waitpid(-1, &how, 0);
    if (pid == child) {
      if (write(0, &how, sizeof how) < 0) _exit(1);
      close(0);
    } else if (pid < 0 && errno == ECHILD) {
      _exit(0);
    }
  }
}

static void close_both(int pipe[2]) {
  for (int i = 0; i < 2; i++)
    if (pipe[i] >= 0) close(pipe[i]);
  pipe[0] = pipe[1] = -1;
}

enum { OUTPUT, APART, IN, STATUS, CONTROL, REPORT, PIPES };

/* Makes a command's streams, as its user: they are to be opened by names like /dev/stderr. With a terminal, its owner's end
 * is that of the pipe OUTPUT which we read, and the command's the other. Returns errno. */
static int make_streams(const struct job *j, const struct command *c, int pipes[PIPES][2]) {
  int error = 0;
  act_as(&c->who);
  if (j->terminal) {
    int ours = open_terminal(c, &pipes[OUTPUT][1]);
    if (ours >= 0) pipes[IN][1] = fcntl(ours, F_DUPFD_CLOEXEC, 3);
    error = pipes[IN][1] < 0 ? errno : 0;
    pipes[OUTPUT][0] = ours;
  }
  for (int i = OUTPUT; i <= IN && !error && !j->terminal; i++) {
    if ((i == APART && !j->split) || (i == IN && !(c->how & INPUT))) continue;
    if (pipe2(pipes[i], O_CLOEXEC) < 0) error = errno;
    else fchmod(pipes[i][1], i == IN ? 0644 : 0622);
  }
  act_as(NULL);
  return error;
}

/* Starts the job's command, or, for a job that is a SHELL, one with pipes to and from its loop. No end that we hold ever
 * blocks: what holds the other one may do anything with it. Returns 0, or the reason why it could not be. */
int start(struct job *j, const struct command *c) {
  int pipes[PIPES][2], n = j->state == SHELL ? PIPES : CONTROL;
  memset(pipes, -1, sizeof pipes);
  int error = make_streams(j, c, pipes);
  for (int i = STATUS; i < n && !error; i++) error = pipe2(pipes[i], O_CLOEXEC) < 0 ? errno : 0;
  pid_t pid = -1;
  if (!error) {
    if (no_subreaper) remember_processes(j);
    pid = fork();
    if (pid == 0) {
      int output = pipes[OUTPUT][1], input = j->terminal ? output : pipes[IN][0];
      if (j->file >= 0) lseek(j->file, 0, SEEK_SET);
      monitor(c, (struct ends){j->file >= 0 ? j->file : input, output, j->split ? pipes[APART][1] : output,
                               pipes[STATUS][1], pipes[CONTROL][0], pipes[REPORT][1], j->terminal});
    }
    error = pid < 0 ? errno : 0;
  }
  if (j->file >= 0) close(j->file);
  j->file = -1;
  for (int i = 0; i < PIPES; i++) {
    int ours = i == CONTROL || i == IN; /* we write */
    if (error) close_both(pipes[i]);
    if (pipes[i][!ours] >= 0) close(pipes[i][!ours]);
    if (pipes[i][ours] >= 0) fcntl(pipes[i][ours], F_SETFL, O_NONBLOCK);
  }
  j->out[0] = pipes[OUTPUT][0];
  j->out[1] = pipes[APART][0];
  j->in = pipes[IN][1];
  j->status = pipes[STATUS][0];
  j->control = pipes[CONTROL][1];
  j->report = pipes[REPORT][0];
  if (!error) j->monitor = pid;
  return error;
}
