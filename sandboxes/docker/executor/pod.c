/* What a pod needs beside process 1, each a process of its own that its cluster starts:
 *
 *   relay NAME SECONDS [off] [ADDRESS:PORT...]   passes its standard input on to process 1 and what that says to standard
 *       output. It runs in another container of the pod, so nothing in the sandbox can see, signal or trace it. Before, with
 *       "off", it takes the pod's network down, and without it goes on only where none of the addresses answers
 *   keep NAME      holds that other container, as long as process 1 is there
 *   who            writes the user that the image names to where its cluster reads it
 *   pack, unpack   see tree.c
 *   kill           kills everything in the container but process 1
 *   show FILE...   the first line of each, or nothing
 *   within PID ... one of these in the container of a process, for who starts them from outside; to `kill` among its
 *       processes too, to the others nothing in it can see, signal or trace */
#include "executor.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <net/if.h>
#include <unistd.h>

enum { REACHED_MS = 1000, KEEP_S = 2, PATIENCE_S = 30, KILL_TRIES = 200, OPEN = 90 /* exit code */ };

static int fail(const char *what, int code) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  return code;
}

static int network_off(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct if_nameindex *all = if_nameindex();
  if (fd < 0 || !all) return -1;
  for (struct if_nameindex *one = all; one->if_name; one++) {
    struct ifreq request = {0};
    strncpy(request.ifr_name, one->if_name, IFNAMSIZ - 1);
    if (ioctl(fd, SIOCGIFFLAGS, &request) < 0) return -1;
    if (request.ifr_flags & IFF_LOOPBACK || !(request.ifr_flags & IFF_UP)) continue;
    request.ifr_flags &= ~IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0) return -1;
  }
  if_freenameindex(all);
  close(fd);
  return 0;
}

/* Returns whether a server answers there, be it to refuse us. */
static int reaches(char *where) {
  struct sockaddr_in to = {.sin_family = AF_INET};
  char *colon = strrchr(where, ':');
  int error = 0;
  socklen_t size = sizeof error;
  if (!colon) return 0;
  to.sin_port = htons(atoi(colon + 1));
  *colon = 0;
  if (inet_pton(AF_INET, where, &to.sin_addr) != 1) return 0;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  if (connect(fd, (void *)&to, sizeof to) < 0 && errno == EINPROGRESS) {
    struct pollfd p = {fd, POLLOUT, 0};
    error = poll(&p, 1, REACHED_MS) == 1 ? 0 : ETIMEDOUT;
    if (!error) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  } else {
    error = errno;
  }
  close(fd);
  return error == 0;
}

static int give_all(int fd, const char *data, size_t len) {
  while (len) {
    ssize_t n = write(fd, data, len);
    if (n < 0 && errno == EAGAIN) {
      struct pollfd p = {fd, POLLOUT, 0};
      poll(&p, 1, -1);
      continue;
    }
    if (n <= 0) return -1;
    data += n, len -= n;
  }
  return 0;
}

static int relay(int argc, char **argv) {
  static char piece[CHUNK];
  int off = 0;
  for (int i = 4; i < argc; i++) off |= !strcmp(argv[i], "off");
  if (off && network_off() < 0) return fail("the pod's network can't be taken down", OPEN);
  for (int i = 4; i < argc && !off; i++)
    if (reaches(argv[i])) return fprintf(stderr, "the pod reaches %s\n", argv[i]), OPEN;
  signal(SIGPIPE, SIG_IGN);
  struct sockaddr_un to;
  socklen_t size = abstract_name(&to, argv[2]);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (int tries = 50 * atoi(argv[3]); connect(fd, (void *)&to, size) < 0; tries--) {
    if (errno != ECONNREFUSED || tries <= 0) return fail("process 1 is not there", 5);
    usleep(20000);
  }
  for (struct pollfd ends[2] = {{0, POLLIN, 0}, {fd, POLLIN, 0}};;) {
    if (poll(ends, 2, -1) < 0) return 6;
    for (int i = 0; i < 2; i++) {
      if (!ends[i].revents) continue;
      ssize_t n = read(ends[i].fd, piece, sizeof piece);
      if (n <= 0 || give_all(i ? 1 : fd, piece, n) < 0) return 0;
    }
  }
}

/* Whoever else has bound the name is process 1. */
static int keep_on(const char *name) {
  struct sockaddr_un at;
  socklen_t size = abstract_name(&at, name);
  for (int waited = 0, seen = 0;; waited += KEEP_S) {
    sleep(KEEP_S);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int there = bind(fd, (void *)&at, size) < 0;
    close(fd);
    seen |= there;
    if (!there && (seen || waited > PATIENCE_S)) return 0;
  }
}

static int who(void) {
  FILE *to = fopen("/dev/termination-log", "w");
  if (!to || fprintf(to, "%u %u", geteuid(), getegid()) < 0 || fclose(to)) return fail("/dev/termination-log", 1);
  return 0;
}

static int kill_all(void) {
  for (int tries = 0; tries < KILL_TRIES; tries++) {
    int others = 0;
    kill(-1, SIGKILL);
    DIR *all = opendir("/proc");
    if (!all) return 1;
    for (struct dirent *e; (e = readdir(all));) {
      int pid = atoi(e->d_name);
      others += pid > 1 && pid != getpid();
    }
    closedir(all);
    if (!others) return 0;
    usleep(50000);
  }
  return 1;
}

static int show(char **files) {
  for (; *files; files++) {
    char line[128] = "";
    FILE *from = fopen(*files, "r");
    if (from && fgets(line, sizeof line, from)) line[strcspn(line, "\n")] = 0;
    if (from) fclose(from);
    puts(line);
  }
  return 0;
}

static int within(int argc, char **argv) {
  static const char *const kinds[] = {"net", "pid", "mnt"};
  char path[64];
  int all[3], how = 0, kills = !strcmp(argv[3], "kill");
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "/proc/%s/ns/%s", argv[2], kinds[i]);
    all[i] = open(path, O_RDONLY | O_CLOEXEC);
  }
  for (int i = 0; i < 3; i++)
    if ((i != 1 || kills) && setns(all[i], 0) < 0) return fail("its container can't be entered", 7);
  pid_t child = kills ? fork() : 0;
  if (!child) return pod_tool(argc - 2, argv + 2);
  return child < 0 || waitpid(child, &how, 0) < 0 || !WIFEXITED(how) ? 1 : WEXITSTATUS(how);
}

/* Returns the exit code, -1 if it is asked for none of these. */
int pod_tool(int argc, char **argv) {
  if (argc < 2) return -1;
  if (!strcmp(argv[1], "within") && argc > 3) return within(argc, argv);
  if (!strcmp(argv[1], "relay") && argc > 3) return relay(argc, argv);
  if (!strcmp(argv[1], "keep") && argc == 3) return keep_on(argv[2]);
  if (!strcmp(argv[1], "who")) return who();
  if (!strcmp(argv[1], "kill")) return kill_all();
  if (!strcmp(argv[1], "show")) return show(argv + 2);
  if (!strcmp(argv[1], "pack") && argc == 4) pack(argv[2], strtoull(argv[3], NULL, 10));
  if (!strcmp(argv[1], "unpack") && argc == 3) unpack(argv[2]);
  return -1;
}
