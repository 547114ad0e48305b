/* Sessions: a shell that runs one command after the other, so that its state lasts.
 *
 * The shell runs a loop that our owner gives it. For each command we write its text into the file `text` in
 * the session's directory and "SLOT NONCE STREAM" into the loop's control pipe (3). The loop reads the text, runs
 * it with its stderr to that stream, 1 or 6, which lead to pipes of their own, writes "ended NONCE CODE" into the report pipe (4) and saves the shell's state into the file `state.SLOT`. Two
 * slots by turns, so that a kill in the middle leaves the older one whole, and the next shell takes that. The nonce is
 * the command's own: what is said of another one means nothing.
 *
 * Where the text can't be written, as /dev/shm is full, it follows in the control pipe: "SLOT+ NONCE STREAM", the text, "NONCE".
 *
 * A command that ends its shell (exit, exec, a signal, its time limit) takes the state with it; the next one
 * gets a new shell, whose first line "-SLOT - STREAM" brings it back to where it was before that command; without a
 * slot, there is none yet. A shell that is being killed is given
 * no command, and one that dies before it has taken its command costs it nothing: it goes to the next shell.
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
  struct bytes text; /* of the line, which may have to wait for a shell */
  int given, again;  /* the line was given to the shell; and if that dies before it takes it, to another one */
  char nonce[NAME_SIZE], said[64]; /* said: what has come of a line of the report */
  size_t n_said;
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
struct job *whose_output(struct job *j) {
  if (j->state == BACKGROUND) return NULL;
  if (!j->session) return j;
  struct session *s = j->session;
  return s->line && s->given ? s->line : NULL;
}

/* Exactly what lies in a pipe now: a background process may go on writing. */
static void drain_stream(struct job *shell, int stream) {
  char buffer[4096];
  int left = 0, from = shell->out[stream];
  if (from < 0 || ioctl(from, FIONREAD, &left) < 0) return;
  while (left > 0) {
    ssize_t n = read(from, buffer, left < (int)sizeof buffer ? (size_t)left : sizeof buffer);
    if (n <= 0) return;
    keep_output(whose_output(shell), stream, buffer, n);
    left -= n;
  }
}

static void drain(struct job *shell) {
  for (int i = 0; i < 2; i++) drain_stream(shell, i);
}

static void end_line(struct session *s, int exit_code) {
  struct job *line = s->line;
  s->line = NULL;
  if (s->text.cap > CHUNK) drop(&s->text);
  line->exit_code = exit_code;
  finish(line);
}

/* Whether all of it went into the control pipe. Something inside may have filled that. */
static int tell(struct job *shell, const char *what, size_t len) {
  return write(shell->control, what, len) == (ssize_t)len;
}

/* Where its command's stderr goes. */
static const char *stream_of(const struct session *s) { return s->line->split ? "6" : "1"; }

/* Returns errno. */
static int start_shell(struct session *s, const struct command *c) {
  struct job *shell = add(s->id);
  shell->state = SHELL;
  shell->split = 1; /* which a command may want, or not */
  int error = start(shell, c);
  if (error) {
    forget(shell);
    return error;
  }
  shell->session = s;
  s->shell = shell;
  s->n_said = 0;
  char back[] = {'-', '0' + s->saved, 0}, begin[16];
  if (s->saved < 0) back[1] = 0;
  tell(shell, begin, join(begin, sizeof begin, back, " - ", stream_of(s), "\n", NULL));
  return 0;
}

static void kill_shell(struct job *shell) {
  shell->exit_code = 137;
  begin_kill(shell);
}

/* The text goes into its file, or else by way of the pipe. Returns errno. */
static int give(struct session *s, const struct command *c) {
  char path[4096], head[32], end[32];
  if (!join(path, sizeof path, c->argv[c->n_argv - 1], "/text", NULL)) return ENAMETOOLONG;
  if (!make_name(s->nonce)) return errno;
  int error = write_small(&c->who, path, s->text.at, s->text.len);
  int told = tell(s->shell, head, join(head, sizeof head, s->slot ? "1" : "0", error ? "+ " : " ", s->nonce,
                               " ", stream_of(s), "\n", NULL));
  if (told && error) {
    told = tell(s->shell, s->text.at, s->text.len) &&
           tell(s->shell, end, join(end, sizeof end, "\n", s->nonce, "\n", NULL));
    if (!told && s->text.len < MIN_PIPE) error = 0; /* not for its length */
  }
  if (told) return 0;
  s->given = !s->again;
  kill_shell(s->shell);
  return error;
}

/* Gives the session's command to its shell, once there is one that isn't being killed. */
static void begin_line(struct session *s) {
  struct command c;
  if (s->shell && s->shell->state != SHELL) return; /* when that is gone */
  if (!parse_command(s->request, s->request_len, &c)) _exit(65);
  s->again = s->shell != NULL;
  int error = s->shell ? 0 : start_shell(s, &c);
  if (!error) {
    s->slot = s->saved == 0;
    if (s->again) drain(s->shell); /* what was printed before is not this command's */
    s->given = 1;
    remember_processes(s->shell);
    error = give(s, &c);
  }
  free(c.argv);
  if (error) {
    say(s->line, "cannot give the command to its shell", error);
    if (error == EAGAIN && !s->shell) make_room(s->line);
    end_line(s, 126);
  }
}

/* u32 session, u32 max_output, u32 timeout ms, u32 how, text. One command of a session at a time, says the protocol. */
void run_line(struct job *line, const char *p, size_t len) {
  struct session *s = len < 16 ? NULL : find_session(u32(p));
  if (!s) _exit(65);
  uint32_t timeout_ms = u32(p + 8);
  line->split = u32(p + 12) & SPLIT ? 1 : 0;
  bound(&line->output, u32(p + 4));
  for (int i = 0; i < 2 * line->split; i++) bound(&line->apart[i], u32(p + 4));
  if (s->line) { /* one that was given up on our owner's side */
    say(line, "the session's last command has not ended", EBUSY);
    line->exit_code = 126;
    finish(line);
    return;
  }
  line->state = LINE;
  line->session = s;
  if (timeout_ms) line->deadline = now_ms() + timeout_ms;
  s->line = line;
  s->given = 0;
  s->text.len = 0;
  append(&s->text, p + 16, len - 16);
  begin_line(s);
}

/* What lies in the control pipe: the shell is busy with the state that the command before has left, or gone. */
static int untaken(const struct job *shell) {
  int unread = 0;
  return ioctl(shell->control, FIONREAD, &unread) == 0 && unread > 0;
}

/* The shell has ended, by itself or killed: so has its command, and the session has no shell for now. */
void shell_is_gone(struct job *shell) {
  struct session *s = shell->session;
  int lost = s && s->again && untaken(shell);
  drain(shell);
  shell->session = NULL;
  shell->state = BACKGROUND; /* what earlier commands left running may still hold its output */
  close(shell->control);
  close(shell->report);
  shell->control = shell->report = -1;
  if (!s) return;
  s->shell = NULL;
  if (!s->line) return;
  if (!s->given || (lost && !s->line->kill_limit)) {
    s->given = 0;
    begin_line(s);
    return;
  }
  s->line->shell_ended = 1;
  end_line(s, shell->exit_code);
}

/* Its time is up, or its owner has lost interest. */
void cancel_line(struct job *line) {
  struct session *s = line->session;
  if (!line->kill_limit) line->kill_limit = now_ms() + GRACE_TOTAL_MS;
  line->deadline = 0;
  if (!s->given) {
    end_line(s, 137);
  } else if (s->shell && s->shell->state == SHELL && untaken(s->shell) && now_ms() < line->kill_limit) {
    line->deadline = now_ms() + KILL_TICK_MS;
  } else if (s->shell && s->shell->state == SHELL) {
    kill_shell(s->shell);
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
  drop(&s->text);
  free(s);
  return 1;
}

/* All of them; their processes have ended, and their jobs are forgotten. */
void forget_sessions(void) {
  for (struct session *s; (s = sessions);) {
    sessions = s->next;
    free(s->request);
    drop(&s->text);
    free(s);
  }
}

/* A line of what the loop says: "ended NONCE CODE", its own nonce. Anything else is not about this command. */
static void take_report(struct session *s, const char *text) {
  size_t n = strlen("ended ");
  if (!s->line || !s->given || strncmp(text, "ended ", n) || strncmp(text + n, s->nonce, NAME_SIZE - 1)) return;
  drain(s->shell);
  s->saved = s->slot;
  end_line(s, atoi(text + n + NAME_SIZE - 1) & 255);
}

/* What comes from a shell that is being killed comes too late: its command ends with it. */
void read_report(struct job *shell) {
  struct session *s = shell->session;
  char text[256];
  ssize_t n = read(shell->report, text, sizeof text);
  if (n < 0) return;
  if (n == 0) { /* by `exec`, say; how that ends is still to come */
    close(shell->report);
    shell->report = -1;
    return;
  }
  for (ssize_t i = 0; i < n && s && shell->state == SHELL; i++) {
    if (text[i] == '\n') {
      s->said[s->n_said] = 0;
      s->n_said = 0;
      take_report(s, s->said);
    } else if (s->n_said < sizeof s->said - 1) {
      s->said[s->n_said++] = text[i];
    }
  }
}
