/* The main process of a sandbox container: runs commands and moves files for us over stdin and stdout.
 *
 * It is process 1 of its container and a user of its own (see self.c), so nothing in the container can signal, stop or
 * trace it, or change its limits, and it holds the few capabilities that its commands do not get (another user, kill,
 * drop capabilities). It never waits for anything in the container: what it reads and writes there does not block.
 *
 * Frame, both ways, little endian: u32 payload length, u32 request id, u8 type, payload.
 *   in   D  data of a file to write, or of the standard input of the command that will follow as E
 *        E  execute: u32 max_output, u32 timeout ms (0: none), u32 uid, u32 gid, u16 n groups, u16 n argv,
 *           u16 n env, u16 how, u16 rows, u16 columns, u32 groups[], then strings that end in NUL: cwd, argv...,
 *           NAME=value... How is of bits: 1 stdout and stderr apart, 2 followed (see follow.c), 4 with a standard input
 *           that comes in d, 8 with a terminal, which is its standard input as well
 *        S  open a session, which keeps this frame's id: as E, the command being its shell (see session.c),
 *           whose last argument is the session's directory
 *        L  run a command in a session: u32 session, u32 max_output, u32 timeout ms, u32 how, of which bit 1 counts, text
 *        K  kill the command and what it started, close the session, or give up the file; its X or F follows
 *        W  write a file: who, u32 mode, path NUL; then D..., C. Who is u32 uid, u32 gid, u16 n groups, u32 groups[]
 *        C  close the file that is being written, which then takes its place
 *        M  make a directory and its parents: who, u32 mode, path NUL
 *        R  read a file: who, u64 max size, path NUL
 *        T  the owner's token: 16 random bytes, sent once
 *        U  offer a socket: path NUL; its F follows. The owner that connects is greeted there, and everything goes
 *           over that from then on (see link.c). Any other frame but this withdraws the offer
 *        P  pass connections to a port of loopback on, as "tunnels" does: u32 port; its F follows
 *        N  reset: u8 whether /dev is new. Every process is killed, every command, session and port forgotten; its F
 *           follows when no process is left
 *        B  be still: u8 whether every process stands from now on, or goes on. Its F follows: ETIMEDOUT where one does not
 *           stand, and then all go on
 *        Q  kill every process, because too much was written: text for the commands under way, NUL
 *   with the two highest bits of the id set, about a connection into the sandbox
 *        J  make it: u32 port of loopback; or to a socket: who, path NUL. Its F follows
 *        Z  no more will come in D. D, G and K are as below
 *   of a command that is followed, with its id
 *        d  data of its standard input; z no more will come
 *        g  u8 stream, u32 bytes that were taken of it: as many more may come. Stream 0 is stdout, 1 is stderr
 *        v  u8 stream: from now on it is kept, as that of other commands, and comes before X
 *        i  u32 number of a signal for its process group
 *        a  u16 rows, u16 columns of its terminal
 *   out  H  hello: u32 protocol version
 *        O  output of a command, or content of a file
 *        o  what of a command's output went to stdout, and e to stderr, where they are apart: after O, which has both
 *        X  a command's end: u32 exit code, u8 flags (1 timed out, 2 its session's shell has ended),
 *           u64 bytes dropped after the first max_output / 2 of O, and as much of o and of e
 *        1  output of a command that is followed, stdout's; 2 stderr's; G u32 bytes of its standard input that it has
 *           taken; Y it has closed that
 *        A  a connection was made to one of our ports on loopback (see tunnel.c), under an id with the highest bit:
 *           u32 port; then with that id O data, Z its client sends no more, Y it is gone, G u32 bytes that were passed back; and
 *           in D data to pass back, Z no more of that, G u32 bytes that were passed on, K no more will come
 *        F  a file operation's end: u32 errno; EFBIG for a file that is larger than allowed. Also of a command whose
 *           standard input can't be held, which then does not start
 *
 * An owner that was cut off (the Docker daemon was restarted) attaches again and sends the token alone, whatever was
 * half sent before. What was under way is then cancelled, and the token and H come back before anything else.
 *
 * When its input ends, its owner is gone: it exits and the kernel kills everything else in the container.
 * The same when no frame has come for "lease=SECONDS": then the owner is gone and the network has not said so.
 *
 * With "tunnels=PORT" it passes connections to that port of loopback on to its owner, from the beginning.
 *
 * With "link=NAME" its owner comes by a socket of that name instead (see link.c), and it stays when that is cut.
 *
 * With "fsize=BYTES" no file may become larger, whoever writes it.
 *
 * With "calls=NUMBER" system calls after that one do not exist for commands (see shared.c).
 *
 * With "capabilities=MASK", hexadecimal, commands of user 0 hold those of the container's capabilities that it names.
 */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct bytes in;
static int64_t lease_ms, last_input;
static uint32_t port; /* of "tunnels=PORT" */
static char token[16];
static int has_token;

static void execute(struct job *j, char *p, size_t len) {
  struct command c;
  if (!parse_command(p, len, &c)) _exit(65);
  if (j->failed) {
    free(c.argv);
    file_done(j, j->failed);
    return;
  }
  j->state = RUNNING;
  j->split = c.how & SPLIT ? 1 : 0;
  follow(j, &c);
  bound(&j->output, c.max_output);
  for (int i = 0; i < 2 * j->split; i++) bound(&j->apart[i], c.max_output);
  if (c.timeout_ms) j->deadline = now_ms() + c.timeout_ms;
  int error = start(j, &c);
  free(c.argv);
  if (!error) return;
  say(j, "cannot start a process", error);
  if (error == EAGAIN) make_room(j);
  j->exit_code = 126;
  finish(j);
}

static void cancel(uint32_t id) {
  if (close_session(id)) return;
  struct job *j = find(id);
  if (!j) return;
  if (j->state == RUNNING) {
    if (!j->main_done) j->exit_code = 137; /* until its monitor says more */
    begin_kill(j);
  } else if (j->state == LINE) {
    cancel_line(j);
  } else if (j->state == PENDING) {
    j->exit_code = 137;
    finish(j);
  } else if (j->state == READING || j->state == WRITING) {
    file_done(j, ECANCELED);
  }
}

/* R, W and M: who it is done as, a number, a path. Returns whether it is well formed. */
static int begin_file(struct job *j, char type, char *p, size_t len) {
  struct who who;
  size_t head = 10, number = type == 'R' ? 8 : 4;
  if (len < head) return 0;
  memcpy(&who.n_groups, p + 8, 2);
  who.uid = u32(p), who.gid = u32(p + 4), who.groups = p + head;
  head += 4 * (size_t)who.n_groups;
  if (len < head + number + 2 || p[len - 1]) return 0;
  char *path = p + head + number;
  uint32_t mode = u32(p + head);
  if (type == 'W') begin_write(j, &who, mode, path);
  else if (type == 'M') make_directory(j, &who, mode, path);
  else begin_read(j, &who, mode | (uint64_t)u32(p + head + 4) << 32, path);
  return 1;
}

static void handle(uint32_t id, char type, char *p, size_t len) {
  if (type == 'U' && len && !p[len - 1]) {
    uint32_t error = offer_link(p);
    send_frame(id, 'F', &error, 4);
    return;
  }
  withdraw_link();
  if (id & TUNNEL) {
    tunnel_frame(id, type, p, len);
    return;
  }
  if (type >= 'a' && type <= 'z') {
    follow_frame(id, type, p, len);
    return;
  }
  if (type == 'P' && len == 4) {
    uint32_t error = listen_for_tunnels(u32(p));
    send_frame(id, 'F', &error, 4);
    return;
  }
  if (type == 'K') {
    cancel(id);
    return;
  }
  if (type == 'T' && len == sizeof token) {
    memcpy(token, p, len);
    has_token = 1;
    return;
  }
  if (type == 'S') {
    open_session(id, p, len);
    return;
  }
  if (type == 'N' && len == 1) {
    begin_reset(id, *p);
    return;
  }
  if (type == 'B' && len == 1) {
    uint32_t error = 0;
    if (*p) stand_still(id);
    else move_again(), send_frame(id, 'F', &error, 4);
    return;
  }
  if (type == 'Q' && len && !p[len - 1]) {
    kill_everything(p);
    return;
  }
  struct job *j = find(id);
  if (!j) j = add(id);
  if (type == 'D') {
    take_data(j, p, len);
  } else if (type == 'E' && j->state == PENDING) {
    execute(j, p, len);
  } else if (type == 'L' && j->state == PENDING) {
    run_line(j, p, len);
  } else if (type == 'R' || type == 'W' || type == 'M') {
    if (j->state != PENDING || j->file >= 0 || !begin_file(j, type, p, len)) _exit(65);
  } else if (type == 'C' && j->state == WRITING) {
    file_done(j, j->failed);
  } else {
    _exit(65); /* not our protocol: better gone than wrong */
  }
}

static void greet(void) {
  uint32_t version = VERSION;
  send_frame(0, 'H', &version, 4);
}

/* Looks for the token in what has arrived since `from`, which may be in the middle of a frame. */
static void resume_link(size_t from) {
  from = from < sizeof token ? 0 : from - sizeof token;
  char *found = has_token ? memmem(in.at + from, in.len - from, token, sizeof token) : NULL;
  if (!found) return;
  for (struct job *j = jobs; j; j = j->next)
    if (j->state != GONE && j->state != BACKGROUND && j->state != SHELL && j->state != KILLING) cancel(j->id);
  end_tunnels();
  move_again();
  found += sizeof token;
  take(&in, found - in.at);
  send_bytes(token, sizeof token);
  greet();
}

/* Where a cut has kept the frame with the token from us, who comes back by a link sends it in a frame of its own. Alone,
 * a token that we don't know is another executor's: of this container before it was started again, without its files. */
static void know_token(void) {
  static const char frame[HEADER] = {sizeof token, [8] = 'V'};
  if (!is_lasting() || has_token || in.len < HEADER + sizeof token || memcmp(in.at, frame, HEADER)) return;
  memcpy(token, in.at + HEADER, sizeof token);
  has_token = 1;
}

static void read_frames(void) {
  reserve(&in, CHUNK, 0);
  ssize_t n = read(0, in.at + in.len, in.cap - in.len);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    lose_link();
    return;
  }
  last_input = now_ms();
  in.len += n;
  know_token();
  resume_link(in.len - n);
  size_t at = 0;
  while (in.len - at >= HEADER) {
    uint32_t len = u32(in.at + at);
    if (len > MAX_FRAME) _exit(65);
    if (in.len - at - HEADER < len) break;
    handle(u32(in.at + at + 4), in.at[at + 8], in.at + at + HEADER, len);
    at += HEADER + len;
  }
  take(&in, at);
  if (!in.len && in.cap > 16 * CHUNK) drop(&in);
}

/* Four streams of ours, at most five of each job, and in the end the tunnels', from `*tunnels` on. */
static size_t streams(struct pollfd **fds, struct job ***of, size_t *tunnels) {
  static size_t cap;
  size_t n = 4, count = 4 + 2 * TUNNELS + LISTENERS;
  for (struct job *j = jobs; j; j = j->next) count += 5;
  if (count > cap) {
    cap = count * 2;
    *fds = realloc(*fds, cap * sizeof **fds);
    *of = realloc(*of, cap * sizeof **of);
    if (!*fds || !*of) _exit(70);
  }
  for (struct job *j = jobs; j; j = j->next) {
    int theirs[] = {wanted(j, 0) ? j->out[0] : -1, wanted(j, 1) ? j->out[1] : -1, j->report, j->status,
                    j->input.len ? j->in : -1};
    for (int i = 0; i < 5; i++)
      if (theirs[i] >= 0) (*of)[n] = j, (*fds)[n++] = (struct pollfd){theirs[i], i < 4 ? POLLIN : POLLOUT, 0};
  }
  *tunnels = n;
  return n + poll_tunnels(*fds + n);
}

/* Milliseconds until something is due, -1 for never. wake: when something else is, 0 for never. */
static int patience(int64_t wake) {
  if (lease_ms && (!wake || last_input + lease_ms < wake)) wake = last_input + lease_ms;
  for (struct job *j = jobs; j; j = j->next) {
    int64_t w = next_wake(j);
    if (w && (!wake || w < wake)) wake = w;
  }
  int64_t wait = wake ? wake - now_ms() : -1;
  if (wake && wait < 0) wait = 0;
  return wait > 3600000 ? 3600000 : (int)wait;
}

/* Asked of a child, because gVisor lets process 1 believe so. */
static int can_be_subreaper(void) {
  int how = 0;
  pid_t child = fork();
  if (child == 0) _exit(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0);
  return child < 0 || waitpid(child, &how, 0) < 0 || how == 0;
}

/* Also of each command, which inherits it; to raise it again takes a capability that nobody here has. The engine is not
 * asked for it: asked for one limit, Podman raises others, which not every machine allows. */
static void limit(int what, rlim_t most) {
  struct rlimit to;
  if (getrlimit(what, &to) < 0) _exit(73);
  if (to.rlim_max > most) to.rlim_max = most;
  to.rlim_cur = to.rlim_max;
  if (setrlimit(what, &to) < 0) _exit(73);
}

/* Podman gives root a root directory that only more rights than root has here could write to. */
static void own_root_directory(void) {
  struct stat s;
  if (stat("/", &s) == 0 && s.st_uid == 0) chmod("/", (s.st_mode & 07777) | S_IWUSR);
}

/* Commands inherit our environment, in which a cluster puts its address. */
static void forget_cluster(void) {
  extern char **environ;
  char **to = environ;
  for (char **from = environ; *from; from++)
    if (strncmp(*from, "KUBERNETES_", 11)) *to++ = *from;
  *to = NULL;
}

static int set_up(int argc, char **argv) {
  own_root_directory();
  limit(RLIMIT_CORE, 0);
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "fsize=", 6)) limit(RLIMIT_FSIZE, atoll(argv[i] + 6));
    if (!strncmp(argv[i], "capabilities=", 13)) root_keeps = strtoull(argv[i] + 13, NULL, 16);
    if (!strncmp(argv[i], "calls=", 6)) know_calls(atoi(argv[i] + 6));
    if (!strncmp(argv[i], "lease=", 6)) lease_ms = atoll(argv[i] + 6) * 1000;
    if (!strncmp(argv[i], "tunnels=", 8)) port = atoi(argv[i] + 8);
    if (!strncmp(argv[i], "link=", 5)) {
      forget_cluster();
      if (listen_for_owner(argv[i] + 5) < 0) _exit(72);
    }
  }
  know_image();
  if (port && listen_for_tunnels(port)) _exit(72);
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  sigprocmask(SIG_BLOCK, &chld, NULL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  no_subreaper = !can_be_subreaper();
  if (argv[0][0] == '/') unlink(argv[0]); /* leave no trace in the file system */
  if (become_own_user()) _exit(72);
  umask(022);
  fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
  last_input = now_ms();
  return signalfd(-1, &chld, SFD_NONBLOCK | SFD_CLOEXEC);
}

int main(int argc, char **argv) {
  int code = pod_tool(argc, argv);
  if (code >= 0) return code;
  int children = set_up(argc, argv);
  if (is_linked()) greet();
  flush_out();
  struct pollfd *fds = NULL;
  struct job **of = NULL;
  int64_t standing = 0;
  for (;;) {
    size_t tunnels, n = streams(&fds, &of, &tunnels);
    fds[0] = (struct pollfd){is_linked() ? 0 : -1, POLLIN, 0};
    fds[1] = (struct pollfd){1, out_pending() ? POLLOUT : 0, 0};
    fds[2] = (struct pollfd){children, POLLIN, 0};
    fds[3] = (struct pollfd){link_listener(), POLLIN, 0};
    if (poll(fds, n, patience(standing)) < 0 && errno != EINTR) _exit(71);

    if (n > tunnels) serve_tunnels(fds + tunnels, n - tunnels);
    for (size_t i = 4; i < tunnels; i++) { /* of a job its output first, its end last */
      if (!fds[i].revents) continue;
      if (fds[i].fd == of[i]->out[0]) read_output(of[i], 0);
      else if (fds[i].fd == of[i]->out[1]) read_output(of[i], 1);
      else if (fds[i].fd == of[i]->in) pass_input(of[i]);
      else if (fds[i].fd == of[i]->report) read_report(of[i]);
      else if (fds[i].fd == of[i]->status) read_status(of[i]);
    }
    struct signalfd_siginfo info;
    if (fds[2].revents) while (read(children, &info, sizeof info) > 0);
    reap();
    for (struct job *j = jobs; j; j = j->next) {
      if (j->state == READING) go_on_reading(j);
      else advance(j);
    }
    if (fds[1].revents & POLLERR) lose_link();
    if (fds[0].revents && is_linked()) read_frames();
    if (fds[3].revents && link_listener() == fds[3].fd && (is_lasting() || !out_pending()) && take_link()) {
      if (!has_token) take(&in, in.len); /* nobody has been here before that could go on */
      greet();
    }
    if (lease_ms && now_ms() - last_input > lease_ms) _exit(0);
    continue_reset(port);
    standing = go_on_standing();
    free_gone();
    flush_out();
  }
}
