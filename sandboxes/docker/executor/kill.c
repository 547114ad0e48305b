/* Finding and killing what a command has started. */
#include "executor.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* `text` is what follows the name in /proc/PID/stat: " S PPID ...". One whose first thread has ended is "Z" as well. */
static struct process parse(pid_t pid, const char *text) {
  struct process p = {pid, atoi(text + 3), 0, text[1] == 'Z' || text[1] == 'X', text[1] == 'T', 0};
  for (int i = 0; i < 19 && text; i++) {
    if (i == 17 && atoi(text) > 1) p.dead = 0; /* its threads */
    text = strchr(text + 1, ' ');
  }
  if (text) p.started = atoll(text + 1);
  return p;
}

size_t list_processes(struct process **list) {
  size_t n = 0, cap = 0;
  DIR *dir = opendir("/proc");
  struct dirent *e;
  *list = NULL;
  while (dir && (e = readdir(dir))) {
    if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
    char path[32] = "/proc/", text[512];
    strncat(path, e->d_name, 12);
    strcat(path, "/stat");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) continue;
    text[got] = 0;
    char *after = strrchr(text, ')'); /* the name before it may hold anything */
    if (!after || strlen(after) < 5) continue;
    if (n == cap) {
      cap = cap ? cap * 2 : 64;
      *list = realloc(*list, cap * sizeof **list);
      if (!*list) _exit(70);
    }
    (*list)[n++] = parse(atoi(e->d_name), after + 1);
  }
  if (dir) closedir(dir);
  return n;
}

int is_monitor(pid_t pid) {
  for (struct job *j = jobs; j; j = j->next)
    if (j->monitor == pid) return 1;
  return 0;
}

/* Whether the process, a descendant of the job's monitor, is to be killed with the job. Of a session that
 * is its shell and what the last command has started, but no server that an earlier one left running. */
static int belongs(const struct job *j, const struct process *p) {
  if (!j->since || p->pid == j->main) return 1;
  return p->started > j->since || (p->started == j->since && p->pid > j->after);
}

/* Marks the descendants of the job's monitor. Should the monitor be gone although it had children, they are
 * ours now: every child of process 1 that is no monitor, and its descendants. Returns how many are alive. */
static size_t mark(struct job *j, struct process *list, size_t n) {
  size_t alive = 0, found = 1;
  pid_t self = getpid();
  for (size_t i = 0; i < n; i++) {
    int orphan = list[i].parent == self && !is_monitor(list[i].pid);
    int child = (j->monitor && list[i].parent == j->monitor) || (orphan && (!j->monitor || no_subreaper));
    list[i].ours = child && belongs(j, &list[i]);
  }
  while (found) {
    found = 0;
    for (size_t i = 0; i < n; i++)
      for (size_t k = 0; k < n && !list[i].ours; k++)
        if (list[k].ours && list[i].parent == list[k].pid && belongs(j, &list[i])) list[i].ours = found = 1;
  }
  for (size_t i = 0; i < n; i++) alive += list[i].ours && !list[i].dead;
  return alive;
}

/* Calls a function with what the system says of each thread of a process, until it returns true; returns whether it did.
 * name: of the file that says it, with a slash before it. */
int any_thread(pid_t pid, const char *name, int (*is)(char *text)) {
  char number[12], *first = number + sizeof number - 1, folder[32], path[64], text[512];
  struct dirent *e;
  int found = 0;
  *first = 0;
  for (; pid; pid /= 10) *--first = '0' + pid % 10;
  join(folder, sizeof folder, "/proc/", first, "/task/", NULL);
  DIR *dir = opendir(folder);
  while (dir && !found && (e = readdir(dir))) {
    int fd = join(path, sizeof path, folder, e->d_name, name, NULL) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) continue;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    found = is(text);
  }
  if (dir) closedir(dir);
  return found;
}

/* Whoever traces one that was killed can hold that at its end for as long as it likes. */
static int kill_tracer(char *text) {
  const char *key = "\nTracerPid:\t"; /* the name before it holds no new line */
  char *found = strstr(text, key);
  pid_t tracer = found ? atoi(found + strlen(key)) : 0;
  if (tracer > 0 && !is_monitor(tracer)) kill(tracer, SIGKILL);
  return 0;
}

static int main_lives(const struct job *j, const struct process *list, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (list[i].ours && !list[i].dead && list[i].pid == j->main) return 1;
  return 0;
}

/* Stops everything first, so that a fork bomb cannot outrun us, then kills. Returns how many were alive.
 * When a process ends of whose group some are stopped, gVisor hangs up on all of the group, which in a session may
 * hold a server that is to live on. So there nothing is stopped before the job's own process is gone. */
size_t kill_round(struct job *j) {
  struct process *list;
  size_t alive = 0, before = 0;
  int late = now_ms() > j->kill_limit - KILL_GIVE_UP_MS + KILL_SOON_MS;
  for (int i = 0; i < 32; i++) {
    size_t n = list_processes(&list);
    alive = mark(j, list, n);
    int last = alive == before || i == 31 || (no_subreaper && main_lives(j, list, n));
    for (size_t k = 0; k < n; k++)
      if (list[k].ours && !list[k].dead) {
        kill(list[k].pid, last ? SIGKILL : SIGSTOP);
        if (last && late) any_thread(list[k].pid, "/status", kill_tracer);
      }
    free(list);
    if (last) break;
    before = alive;
  }
  if (late && !alive && j->monitor && !j->session) kill(j->monitor, SIGKILL); /* it is stopped again and again */
  return alive;
}

void begin_kill(struct job *j) {
  j->state = KILLING;
  j->kill_at = now_ms();
  j->kill_limit = j->kill_at + KILL_GIVE_UP_MS;
}

/* Draws the line between the processes that there are and those that the job's next command starts. */
void remember_processes(struct job *j) {
  struct timespec t;
  long hertz = sysconf(_SC_CLK_TCK);
  clock_gettime(CLOCK_BOOTTIME, &t);
  j->since = (int64_t)t.tv_sec * hertz + t.tv_nsec / (1000000000 / hertz);
  char text[128];
  int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC); /* its last field is the newest process id */
  ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  char *last = strrchr(text, ' ');
  j->after = last ? atoi(last + 1) : 0;
}

/* Everything in the container but us; the commands that are under way say why. */
void kill_everything(const char *why) {
  for (struct job *j = jobs; j; j = j->next)
    if (j->state == RUNNING || j->state == LINE) say(j, why, 0);
  for (int i = 0; i < 8 && kill(-1, SIGKILL) == 0; i++) reap();
}
