/* The requests that are under way, and what becomes of them as time goes by. */
#include "executor.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct job *jobs;

struct job *find(uint32_t id) {
  struct job *j = jobs;
  while (j && (j->id != id || j->state == GONE)) j = j->next;
  return j;
}

struct job *add(uint32_t id) {
  struct job *j = calloc(1, sizeof *j);
  if (!j) _exit(70);
  j->id = id;
  j->file = j->in = j->out[0] = j->out[1] = j->status = j->control = j->report = -1;
  j->next = jobs;
  jobs = j;
  return j;
}

void forget(struct job *j) {
  int *held[] = {&j->file, &j->status, &j->control, &j->report};
  struct output *outputs[] = {&j->output, &j->apart[0], &j->apart[1]};
  for (int i = 0; i < 4; i++) {
    if (*held[i] >= 0) close(*held[i]);
    *held[i] = -1;
  }
  close_output(j);
  close_input(j);
  for (int i = 0; i < 3; i++) {
    drop(&outputs[i]->head);
    drop(&outputs[i]->tail);
  }
  free(j->writing);
  j->writing = NULL;
  j->state = GONE;
}

void free_gone(void) {
  for (struct job **p = &jobs, *j; (j = *p);) {
    if (j->state == GONE) {
      *p = j->next;
      free(j);
    } else {
      p = &j->next;
    }
  }
}

int output_ended(const struct job *j) { return j->out[0] < 0 && j->out[1] < 0; }

void close_output(struct job *j) {
  for (int i = 0; i < 2; i++) {
    if (j->out[i] >= 0) close(j->out[i]);
    j->out[i] = -1;
  }
}

/* The answer goes out; what the command left running goes on, its further output unread by anyone. */
void finish(struct job *j) {
  struct output *outputs[] = {&j->output, &j->apart[0], &j->apart[1]};
  char x[29];
  uint32_t code = j->timed_out ? 124 : j->exit_code;
  memcpy(x, &code, 4);
  x[4] = j->timed_out | j->shell_ended << 1;
  for (int i = 0; i < 3; i++) {
    memcpy(x + 5 + 8 * i, &outputs[i]->dropped, 8);
    send_output(j->id, "Ooe"[i], outputs[i]);
  }
  send_frame(j->id, 'X', x, sizeof x);
  close_input(j);
  j->followed[0] = j->followed[1] = 0;
  j->state = BACKGROUND;
  if (!j->monitor && output_ended(j)) forget(j);
}

/* j: NULL where it is nobody's. */
void keep_output(struct job *j, int stream, const char *data, size_t len) {
  if (!j) return;
  keep(&j->output, data, len);
  if (j->split) keep(&j->apart[stream], data, len);
}

void read_output(struct job *j, int stream) {
  static char buffer[CHUNK];
  for (int i = 0; i < 16 && wanted(j, stream); i++) { /* at most 1 MB, then the others' turn */
    size_t most = j->followed[stream] && j->credit[stream] < CHUNK ? j->credit[stream] : CHUNK;
    ssize_t n = read(j->out[stream], buffer, most);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      j->owed[stream] = 0;
      return;
    }
    if (n <= 0) {
      close(j->out[stream]);
      j->out[stream] = -1;
      return;
    }
    if (j->followed[stream]) pass_output(j, stream, buffer, n);
    else keep_output(whose_output(j), stream, buffer, n);
    if (j->main_done) j->quiet = now_ms() + GRACE_MS;
  }
}

/* A job's process could not be started for want of room. Where no other command is under way, what earlier ones have left
 * running takes it, and nothing could ever be started again, not even what would end that: it is killed. told: the command
 * that hears of it, or NULL. */
void make_room(struct job *told) {
  int found = 0;
  for (struct job *j = jobs; j; j = j->next)
    if ((j->state == RUNNING || j->state == LINE) && j != told) return;
  for (struct job *j = jobs; j; j = j->next) {
    if (j->state != BACKGROUND || !j->monitor) continue;
    j->since = 0; /* all of it */
    begin_kill(j);
    found = 1;
  }
  if (found && told) say(told, "at the limit of processes; what earlier commands left running is killed: try again", 0);
}

/* The monitor's words: first the process id of the command, or with the sign turned why there is none; then how it ended. */
void read_status(struct job *j) {
  int word;
  ssize_t n = read(j->status, &word, sizeof word);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n == sizeof word && !j->main) {
    j->main = word > 0 ? word : -1;
    if (word == -EAGAIN) make_room(whose_output(j));
    send_early_signal(j);
    return;
  }
  close(j->status);
  j->status = -1;
  if (n != sizeof word) { /* the monitor was killed from outside */
    j->exit_code = 137;
    if (j->state == RUNNING || j->state == SHELL) begin_kill(j);
    return;
  }
  j->exit_code = WIFSIGNALED(word) ? 128 + WTERMSIG(word) : WEXITSTATUS(word);
  j->main_done = 1;
  note_owed(j);
  j->quiet = now_ms() + GRACE_MS;
  j->quiet_limit = now_ms() + GRACE_TOTAL_MS;
  if (j->state == SHELL) shell_is_gone(j);
}

/* Returns whether a child is left. */
int reap(void) {
  pid_t pid;
  int how;
  while ((pid = waitpid(-1, &how, WNOHANG | WUNTRACED)) > 0)
    for (struct job *j = jobs; j; j = j->next) {
      if (j->monitor != pid) continue;
      if (WIFSTOPPED(how)) wake_monitor(pid);
      else j->monitor = 0, j->all_ended = WIFEXITED(how) && !no_subreaper;
    }
  return pid == 0;
}

static void killed(struct job *j) {
  for (int i = 0; i < 2; i++) {
    j->followed[i] = 0; /* what is left comes with the answer */
    read_output(j, i);
  }
  if (!(j->session && j->monitor)) close_output(j);
  if (j->session) shell_is_gone(j);
  else finish(j);
}

/* Everything that depends on time or on a process's end. */
void advance(struct job *j) {
  int64_t now = now_ms();
  if (j->state == RUNNING) {
    if (j->main_done && (output_ended(j) || (!owes(j) && (now >= j->quiet || now >= j->quiet_limit)))) {
      finish(j);
      return;
    }
    if (!j->main_done && j->deadline && now >= j->deadline) {
      j->timed_out = 1;
      begin_kill(j);
    }
  }
  if (j->state == LINE && j->deadline && now >= j->deadline) {
    j->timed_out = 1;
    cancel_line(j);
    return;
  }
  if (j->state == KILLING && (now >= j->kill_at || j->all_ended)) {
    /* A monitor that ended by itself proves that everything has; one that was killed proves nothing. Of a
     * session only what its last command started is killed, so that its monitor may well live on. */
    int enough = j->session || !j->monitor || no_subreaper;
    if (!j->all_ended && kill_round(j) == 0 && enough) j->all_ended = 1;
    if (j->all_ended || now >= j->kill_limit) {
      killed(j);
      return;
    }
    j->kill_at = now + KILL_TICK_MS;
  }
  if (j->state == BACKGROUND && !j->monitor && output_ended(j)) forget(j);
}

int64_t next_wake(const struct job *j) {
  if (j->state == KILLING) return j->all_ended ? 1 : j->kill_at;
  if (j->state == READING) return out_pending() < 4 * CHUNK;
  if (j->state == LINE) return j->deadline;
  if (j->state != RUNNING || (j->main_done && owes(j))) return 0;
  return j->main_done ? (j->quiet < j->quiet_limit ? j->quiet : j->quiet_limit) : j->deadline;
}
