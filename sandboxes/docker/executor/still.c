/* Standing still: nothing in the container moves while its files are moved from outside, where its engine can't freeze it.
 *
 * Signal 19 to all is one step for the kernel: nobody is forked past it. Who is in the kernel stops on its way out of it,
 * which is waited for. What waits for a child that was stopped before its exec never comes out, so all go on for a moment
 * and are stopped once more. */
#include "executor.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRY_MS = 20, GIVE_UP_MS = 2000 };

static uint32_t request;
static int is_still, under_way, calm;
static int64_t until, next_try;
static struct process *stopped; /* who was stopped before, and stays so */
static size_t n_stopped;

static int was_stopped(const struct process *p) {
  for (size_t i = 0; i < n_stopped; i++)
    if (stopped[i].pid == p->pid && stopped[i].started == p->started) return 1;
  return 0;
}

static int moves(char *text) {
  char *after = strrchr(text, ')'); /* the name before it may hold anything */
  return after && !strchr("TtZX", after[2]);
}

static void go_on(void) {
  struct process *list;
  size_t n = list_processes(&list);
  for (size_t i = 0; i < n; i++)
    if (list[i].pid != getpid() && (is_monitor(list[i].pid) || !was_stopped(&list[i]))) kill(list[i].pid, SIGCONT);
  free(list);
}

static void answer(uint32_t error) {
  under_way = 0;
  send_frame(request, 'F', &error, 4);
}

/* Its F follows when everything stands: 0, or ETIMEDOUT, and then all goes on. */
void stand_still(uint32_t id) {
  struct process *list;
  move_again();
  size_t n = list_processes(&list);
  n_stopped = 0;
  for (size_t i = 0; i < n; i++)
    if (list[i].stopped) list[n_stopped++] = list[i];
  free(stopped);
  stopped = list;
  request = id;
  is_still = under_way = 1;
  calm = 0;
  until = now_ms() + GIVE_UP_MS;
  next_try = now_ms() + TRY_MS;
  kill(-1, SIGSTOP);
}

void move_again(void) {
  if (is_still) go_on();
  is_still = under_way = 0;
}

/* A monitor that has been stopped: nobody but us has any reason to. */
void wake_monitor(pid_t pid) {
  if (!is_still) kill(pid, SIGCONT);
}

/* To be called again and again. Returns when, in ms, or 0. */
int64_t go_on_standing(void) {
  if (!under_way) return 0;
  struct process *list;
  size_t n = list_processes(&list), moving = 0;
  for (size_t i = 0; i < n && !moving; i++) moving = list[i].pid != getpid() && any_thread(list[i].pid, "/stat", moves);
  free(list);
  calm = moving ? 0 : calm + 1;
  if (calm == 2) { /* one who was seen to stand may have been woken by one who was not yet */
    answer(0);
    return 0;
  }
  if (now_ms() >= until) {
    move_again();
    answer(ETIMEDOUT);
    return 0;
  }
  if (now_ms() >= next_try) {
    go_on();
    kill(-1, SIGSTOP);
    next_try = now_ms() + TRY_MS;
  }
  return now_ms() + 2;
}
