/* Commands that our owner follows while they run: it gets their output as it comes, writes to their standard input, sends
 * them signals, and may be their terminal.
 *
 * Each side may be WINDOW bytes ahead of what the other has taken, of each stream: what our owner does not read holds the
 * command up, as a pipe would. An owner that no longer wants a stream lets it go; from then on it is kept as that of any
 * other command. */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

void follow(struct job *j, const struct command *c) {
  j->terminal = c->how & TERMINAL ? 1 : 0;
  if (!(c->how & FOLLOW)) return;
  for (int i = 0; i < 2; i++) j->followed[i] = 1, j->credit[i] = WINDOW;
}

/* Whether a stream may be read now. */
int wanted(const struct job *j, int stream) {
  return j->out[stream] >= 0 && (!j->followed[stream] || (j->credit[stream] && out_pending() < 4 * CHUNK));
}

/* Sends on what has come of a stream that is followed. */
void pass_output(struct job *j, int stream, const char *data, size_t len) {
  send_frame(j->id, '1' + stream, data, len);
  j->credit[stream] -= len < j->credit[stream] ? len : j->credit[stream];
  j->owed[stream] -= len < j->owed[stream] ? len : j->owed[stream];
}

/* The command has ended: what lies in its pipes now is owed to our owner, however long it takes to read it. Of a terminal
 * some may still be on its way. */
void note_owed(struct job *j) {
  int left;
  for (int i = 0; i < 2; i++) {
    if (!j->followed[i] || j->out[i] < 0) continue;
    if (j->terminal) j->owed[i] = WINDOW;
    else if (ioctl(j->out[i], FIONREAD, &left) == 0) j->owed[i] = left;
  }
}

int owes(const struct job *j) {
  for (int i = 0; i < 2; i++)
    if (j->followed[i] && j->out[i] >= 0 && j->owed[i]) return 1;
  return 0;
}

void close_input(struct job *j) {
  if (j->in >= 0) close(j->in);
  j->in = -1;
  drop(&j->input);
}

/* Writes what it takes of its standard input. */
void pass_input(struct job *j) {
  if (j->in < 0) return;
  ssize_t n = j->input.len ? write(j->in, j->input.at, j->input.len) : 0;
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) {
    send_frame(j->id, 'Y', NULL, 0);
    close_input(j);
    return;
  }
  uint32_t taken = n;
  take(&j->input, n);
  if (n) send_frame(j->id, 'G', &taken, 4);
  if (j->input_ends && !j->input.len) close_input(j);
}

/* To the command's process group, as a terminal's keys send them. One that is only being started has no group yet. */
static void send_signal(struct job *j, int number) {
  if (number < 1 || number > 64 || j->main_done || j->main < 0) return;
  if (!j->main) j->signal = number;
  else if (kill(-j->main, number) < 0) kill(j->main, number);
}

/* What the command was sent before its process id was known. */
void send_early_signal(struct job *j) {
  if (j->signal) send_signal(j, j->signal);
}

/* Frames about a command that runs. Those of one that has ended mean nothing. */
void follow_frame(uint32_t id, char type, const char *p, size_t len) {
  struct job *j = find(id);
  int stream = len && *p == 1;
  if (!j || j->state != RUNNING) return;
  if (type == 'd' && j->input.len + len <= WINDOW) {
    if (j->in < 0) return;
    append(&j->input, p, len);
    pass_input(j);
  } else if (type == 'z' && !len) {
    j->input_ends = 1;
    pass_input(j);
  } else if (type == 'g' && len == 5) {
    j->credit[stream] += u32(p + 1);
  } else if (type == 'v' && len == 1) {
    j->followed[stream] = 0;
  } else if (type == 'i' && len == 4) {
    send_signal(j, u32(p));
  } else if (type == 'a' && len == 4) {
    struct winsize size = {0};
    memcpy(&size, p, 4);
    if (j->terminal) ioctl(j->out[0], TIOCSWINSZ, &size);
  } else {
    _exit(65);
  }
}

/* Opens the command's end by its name, where the kernel (gVisor) gives it in no other way. -1 with errno. */
static int open_by_name(int ours) {
  char digits[12], path[32], *first = digits + sizeof digits - 1;
  struct stat s;
  unsigned n;
  if (ioctl(ours, TIOCGPTN, &n) < 0) return -1;
  *first = 0;
  do *--first = '0' + n % 10;
  while (n /= 10);
  join(path, sizeof path, "/dev/pts/", first, NULL);
  int theirs = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (theirs < 0) return -1;
  fcntl(theirs, F_SETFL, 0);
  if (fstat(theirs, &s) == 0 && S_ISCHR(s.st_mode) && major(s.st_rdev) == 136) return theirs;
  close(theirs);
  errno = ENODEV;
  return -1;
}

/* Opens a terminal of so many rows and columns as the user that files are reached as now: the owner's end, and in `theirs`
 * the command's. -1 with errno. Who is inside may have put anything in the place of the device. */
int open_terminal(const struct command *c, int *theirs) {
  struct winsize size = {c->rows, c->columns, 0, 0};
  struct stat s;
  int unlocked = 0;
  int ours = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (ours < 0) return -1;
  if (fstat(ours, &s) < 0 || !S_ISCHR(s.st_mode) || major(s.st_rdev) != 5 || minor(s.st_rdev) != 2) errno = ENODEV;
  else if (ioctl(ours, TIOCSPTLCK, &unlocked) == 0 && ioctl(ours, TIOCSWINSZ, &size) == 0)
    *theirs = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*theirs < 0 && (errno == ENOTTY || errno == EINVAL)) *theirs = open_by_name(ours);
  if (*theirs >= 0) return ours;
  int error = errno;
  close(ours);
  errno = error;
  return -1;
}
