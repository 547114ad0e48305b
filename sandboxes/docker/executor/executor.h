/* What the parts of the executor share. `main.c` describes the protocol. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
  VERSION = 11,
  HEADER = 9,
  CHUNK = 65536,
  MAX_FRAME = 4 << 20,
  GRACE_MS = 100,        /* silence after which a finished command's output counts as complete */
  GRACE_TOTAL_MS = 1000, /* even when a background child goes on writing */
  KILL_TICK_MS = 3,
  KILL_SOON_MS = 100,    /* what most take to be gone */
  KILL_GIVE_UP_MS = 10000, /* processes stuck in the kernel */
  WINDOW = 128 << 10, /* bytes that one side may be ahead of the other */
  TUNNELS = 64, /* at once, in each direction */
  LISTENERS = 9, /* ports that lead to our owner */
  GROUPS = 64, /* of a user */
  NAME_SIZE = 17,
  MIN_PIPE = 4000, /* bytes that a pipe always takes, when nobody has filled it */
};

#define TUNNEL 0x80000000u /* in the id of a frame that belongs to a tunnel */
#define OWNERS 0x40000000u /* in that of a tunnel that our owner has opened */

struct bytes { char *at; size_t len, cap; };

/* Output with the middle dropped: `head` fills first, then `tail`, a ring once it is full. */
struct output {
  struct bytes head, tail;
  size_t head_max, tail_max, ring;
  uint64_t dropped;
};

/* What a request is doing. SHELL is the process of a session, LINE a command that is given to it; GONE is
 * one that is over and will be freed when nobody looks at it any more. */
enum state { PENDING, RUNNING, KILLING, BACKGROUND, READING, WRITING, SHELL, LINE, GONE };

/* How a command runs; bits. */
enum { SPLIT = 1, FOLLOW = 2, INPUT = 4, TERMINAL = 8 };

/* Whom something is done as. */
struct who {
  uint32_t uid, gid;
  uint16_t n_groups;
  const char *groups; /* u32 each, unaligned */
};

struct session;
struct writing;

struct job {
  struct job *next;
  uint32_t id;
  enum state state;
  int file;          /* PENDING: standard input; READING, WRITING: the file */
  int failed;        /* WRITING, PENDING: errno of the first error */
  struct writing *writing; /* WRITING: what becomes of the file in the end */
  uint64_t left;     /* READING: bytes that may still be read */
  pid_t monitor;     /* 0 when it has ended */
  pid_t main;        /* the command itself */
  int out[2], status; /* pipes: the command's output, of which the second has stderr alone where that is kept apart;
                       * the monitor's word on how it ended. -1 when closed */
  int split;         /* stdout and stderr are kept apart */
  int in, input_ends;      /* its standard input, -1 when that is not ours to write; no more will come */
  struct bytes input;      /* what it has not taken yet */
  int terminal, signal;    /* it has one, whose end is out[0]; what it is sent once it is there */
  int followed[2];         /* each stream: whether it is sent as it comes, */
  uint32_t credit[2], owed[2]; /* how much may be sent, and how much will be before the command counts as ended */
  int main_done, exit_code, timed_out, shell_ended, all_ended;
  int64_t deadline, quiet, quiet_limit, kill_at, kill_limit; /* ms, monotonic; 0: none */
  struct output output; /* both streams, in the order in which they came */
  struct output apart[2]; /* each by itself, where it is kept */
  struct session *session; /* SHELL, LINE: theirs; a shell that was killed keeps it until that is done */
  int control, report;     /* SHELL: the pipes to and from its loop */
  int64_t since;           /* if not 0, only `main` is killed and what started after this, in ticks since boot, */
  pid_t after;             /* and after this process id */
};

struct command {
  uint32_t max_output, timeout_ms;
  struct who who;
  uint16_t n_argv, n_env, how, rows, columns;
  const char *cwd;
  char **argv, **env;
};

/* bytes.c */
int64_t now_ms(void);
uint32_t u32(const char *p);
size_t join(char *to, size_t size, ...);
int make_name(char name[NAME_SIZE]);
void reserve(struct bytes *b, size_t more, size_t max);
void append(struct bytes *b, const void *data, size_t len);
void take(struct bytes *b, size_t n);
void drop(struct bytes *b);
void send_bytes(const void *data, size_t len);
void send_frame(uint32_t id, char type, const void *data, uint32_t len);
void send_output(uint32_t id, char type, struct output *o);
size_t out_pending(void);
void flush_out(void);
void bound(struct output *o, uint32_t max);
void keep(struct output *o, const char *data, size_t len);
void say(struct job *j, const char *what, int error);

/* jobs.c */
extern struct job *jobs;
struct job *find(uint32_t id);
struct job *add(uint32_t id);
void forget(struct job *j);
void free_gone(void);
void finish(struct job *j);
void keep_output(struct job *j, int stream, const char *data, size_t len);
void read_output(struct job *j, int stream);
int output_ended(const struct job *j);
void close_output(struct job *j);
void make_room(struct job *told);
void read_status(struct job *j);
int reap(void);
void advance(struct job *j);
int64_t next_wake(const struct job *j);

/* command.c */
extern int no_subreaper;
int parse_command(char *p, size_t len, struct command *c);
int start(struct job *j, const struct command *c);
const char *parse_who(const char *p, size_t len, struct who *who);
void close_from(int fd);

/* follow.c */
void follow(struct job *j, const struct command *c);
int wanted(const struct job *j, int stream);
void pass_output(struct job *j, int stream, const char *data, size_t len);
void note_owed(struct job *j);
int owes(const struct job *j);
void close_input(struct job *j);
void pass_input(struct job *j);
void send_early_signal(struct job *j);
void follow_frame(uint32_t id, char type, const char *p, size_t len);
int open_terminal(const struct command *c, int *theirs);

/* self.c */
enum { OWN_UID = 60417 }; /* hopefully nobody's: no command runs as it */
extern int nothing;
extern uint64_t root_keeps; /* the capabilities of root's commands, a bit for each */
int hold_nothing(void);
int become_own_user(void);
int is_own_user(void);
void drop_capabilities(void);
void bound_capabilities(uint64_t which);
int act_as(const struct who *who);

/* shared.c */
void close_what_is_shared(void);
void know_calls(uint32_t newest);
void know_image(void);

/* kill.c */
struct process { pid_t pid, parent; int64_t started; char dead, stopped, ours; };
size_t list_processes(struct process **list);
int is_monitor(pid_t pid);
int any_thread(pid_t pid, const char *name, int (*is)(char *text));
void begin_kill(struct job *j);
size_t kill_round(struct job *j);
void remember_processes(struct job *j);
void kill_everything(const char *why);

/* still.c */
void stand_still(uint32_t id);
void move_again(void);
void wake_monitor(pid_t pid);
int64_t go_on_standing(void);

/* files.c */
void begin_write(struct job *j, const struct who *who, uint32_t mode, char *path);
void make_directory(struct job *j, const struct who *who, uint32_t mode, char *path);
void begin_read(struct job *j, const struct who *who, uint64_t max, const char *path);
void go_on_reading(struct job *j);
void take_data(struct job *j, const char *data, size_t len);
void file_done(struct job *j, int error);
int write_small(const struct who *who, char *path, const char *data, size_t len);

/* tunnel.c */
struct pollfd;
int listen_for_tunnels(uint32_t port);
size_t poll_tunnels(struct pollfd *fds);
void serve_tunnels(const struct pollfd *fds, size_t count);
void tunnel_frame(uint32_t id, char type, const char *p, size_t len);
void end_tunnels(void);
void stop_listening(void);

/* link.c */
struct sockaddr_un;
uint32_t abstract_name(struct sockaddr_un *at, const char *name);
int listen_for_owner(const char *name);
int is_lasting(void);
int is_linked(void);
void lose_link(void);
int link_listener(void);
void withdraw_link(void);
int offer_link(const char *path);
int take_link(void);

/* reset.c */
void begin_reset(uint32_t id, int new_devices);
void continue_reset(uint32_t port);

/* pod.c */
int pod_tool(int argc, char **argv);

/* tree.c */
void pack(const char *path, uint64_t most);
void unpack(const char *path);

/* session.c */
void forget_sessions(void);
void open_session(uint32_t id, const char *request, size_t len);
void run_line(struct job *line, const char *p, size_t len);
int close_session(uint32_t id);
void cancel_line(struct job *line);
void read_report(struct job *shell);
void shell_is_gone(struct job *shell);
struct job *whose_output(struct job *j);
