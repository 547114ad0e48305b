/* Sessions: a shell that runs one command after the other, so that its state lasts.
 *
 * The shell runs a loop that our owner gives it. For each command we write its text into the file `text` in
 * the session's directory and "SLOT" into the loop's control pipe (3). The loop reads the text, runs
 * it, writes "ended CODE" into the report pipe (4) and saves the shell's state into the file `state.SLOT`. Two slots
 * by turns, so that a kill in the middle leaves the older one whole, and the next shell takes that.
 *
 * A command that ends its shell (exit, exec, a signal, its time limit) takes the state with it; the next one
 * gets a new shell, which "-SLOT" brings back to where it was before that command.
 */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct session {
  struct session *next;
  uint32_t id;
  char *request;     /* as it came, for the next shell */
  size_t request_len;
  int saved, slot;   /* the slot that was written last, -1 for none; the one that is written next */
  struct job *shell, *line; /* NULL when there is none */
};

static struct session *sessions;

static struct session *find_session(uint32_t id) {
  struct session *s = sessions;
  while (s && s->id != id) s = s->next;
  return s;
}

void open_session(uint32_t id, const char *request, size_t len) {
  struct session *s = calloc(1, sizeof *s);
  if (!s || !(s->request = malloc(len))) _exit(70);
  memcpy(s->request, request, len);
  s->request_len = len;
  s->id = id;
  s->saved = -1;
  s->next = sessions;
  sessions = s;
}

/* Output while no command is under way is nobody's. */
struct output *where_output_goes(struct job *j) {
  if (j->state == BACKGROUND) return NULL;
  if (!j->session) return &j->output;
  struct session *s = j->session;
  return s->line && s->line->state == LINE ? &s->line->output : NULL;
}

/* Exactly what lies in the pipe now: a background process may go on writing. */
static void drain(struct job *shell) {
  char buffer[4096];
  int left = 0;
  if (shell->out < 0 || ioctl(shell->out, FIONREAD, &left) < 0) return;
  while (left > 0) {
    ssize_t n = read(shell->out, buffer, left < (int)sizeof buffer ? (size_t)left : sizeof buffer);
    if (n <= 0) return;
    struct output *o = where_output_goes(shell);
    if (o) keep(o, buffer, n);
    left -= n;
  }
}

static void end_line(struct session *s, int exit_code) {
  struct job *line = s->line;
  s->line = NULL;
  line->exit_code = exit_code;
  finish(line);
}

static int tell(struct job *shell, const char *what, int slot) {
  char line[16];
  strcpy(line, what);
  size_t n = strlen(line);
  line[n++] = '0' + slot;
  line[n++] = '\n';
  return write(shell->control, line, n) == (ssize_t)n ? 0 : errno;
}

static int start_shell(struct session *s, const struct command *c) {
  struct job *shell = add(s->id);
  shell->state = SHELL;
  shell->session = s;
  int error = start(shell, c);
  if (error) {
    forget(shell);
    return error;
  }
  s->shell = shell;
  return s->saved >= 0 ? tell(shell, "-", s->saved) : 0;
}

/* Gives the session's command to its shell. */
static void begin_line(struct session *s, const char *text, size_t len) {
  struct job *line = s->line;
  struct command c;
  char path[4096];
  if (!parse_command(s->request, s->request_len, &c)) _exit(65);
  const char *directory = c.argv[c.n_argv - 1];
  int error = strlen(directory) + 8 > sizeof path ? ENAMETOOLONG : 0;
  if (!error) {
    strcpy(path, directory);
    strcat(path, "/text");
    error = write_small(c.uid, c.gid, path, text, len);
  }
  if (!error && !s->shell) error = start_shell(s, &c);
  free(c.argv);
  if (!error) {
    line->state = LINE;
    s->slot = s->saved == 0;
    drain(s->shell); /* what was printed before is not this command's */
    remember_processes(s->shell);
    error = tell(s->shell, "", s->slot);
    if (error == EPIPE) error = 0; /* it has just died, and its end will be the command's */
  }
  if (error) {
    say(line, "cannot give the command to its shell", error);
    end_line(s, 126);
  }
}

/* u32 session, u32 max_output, u32 timeout ms, text. One command of a session at a time, says the protocol. */
void run_line(struct job *line, const char *p, size_t len) {
  struct session *s = len < 12 ? NULL : find_session(u32(p));
  if (!s || s->line) _exit(65);
  uint32_t timeout_ms = u32(p + 8);
  line->state = LINE;
  line->session = s;
  bound(&line->output, u32(p + 4));
  if (timeout_ms) line->deadline = now_ms() + timeout_ms;
  s->line = line;
  begin_line(s, p + 12, len - 12);
}

/* The shell has ended, by itself or killed: so has its command, and the session has no shell for now. */
void shell_is_gone(struct job *shell) {
  struct session *s = shell->session;
  drain(shell);
  shell->session = NULL;
  shell->state = BACKGROUND; /* what earlier commands left running may still hold its output */
  close(shell->control);
  close(shell->report);
  shell->control = shell->report = -1;
  if (!s) return;
  s->shell = NULL;
  if (!s->line) return;
  s->line->shell_ended = 1;
  end_line(s, shell->exit_code);
}

/* Whether the shell is still busy with the state that the command before has left. */
static int is_saving(const struct job *shell) {
  int unread = 0;
  return ioctl(shell->control, FIONREAD, &unread) == 0 && unread > 0;
}

/* Its time is up, or its owner has lost interest. */
void cancel_line(struct job *line) {
  struct session *s = line->session;
  if (!line->kill_limit) line->kill_limit = now_ms() + GRACE_TOTAL_MS;
  line->deadline = 0;
  if (s->shell && s->shell->state == SHELL && is_saving(s->shell) && now_ms() < line->kill_limit) {
    line->deadline = now_ms() + KILL_TICK_MS;
  } else if (s->shell && s->shell->state == SHELL) {
    s->shell->exit_code = 137;
    begin_kill(s->shell);
  }
}

/* Ends the session with what its shell has started; an X follows. Returns whether there was one. */
int close_session(uint32_t id) {
  struct session **p = &sessions, *s;
  while (*p && (*p)->id != id) p = &(*p)->next;
  if (!(s = *p)) return 0;
  *p = s->next;
  if (s->line) end_line(s, 137);
  if (s->shell) {
    s->shell->session = NULL; /* from now on a command like any other, to be killed whole */
    s->shell->since = 0;
    begin_kill(s->shell);
  } else {
    finish(add(id));
  }
  free(s->request);
  free(s);
  return 1;
}

/* What the loop says: "ended CODE". Anything else is no loop of ours any more. */
void read_report(struct job *shell) {
  struct session *s = shell->session;
  char text[64];
  ssize_t n = read(shell->report, text, sizeof text - 1);
  if (n < 0) return;
  if (n == 0) { /* by `exec`, say; how that ends is still to come */
    close(shell->report);
    shell->report = -1;
    return;
  }
  text[n] = 0;
  if (!strncmp(text, "ended ", 6) && strchr(text, '\n') == text + n - 1 && s->line) {
    drain(shell);
    s->saved = s->slot;
    end_line(s, atoi(text + 6));
  } else {
    shell->exit_code = 137;
    begin_kill(shell);
  }
}
