/* Connections into and out of a sandbox that has no network. Out: what connects to one of our ports on loopback is passed on
 * to our owner, who decides where it may lead. In: our owner has us connect to a server on loopback, or to a socket's path.
 * Each side may be WINDOW bytes ahead of what the other has passed on. */
#include "executor.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* id 0: a free place; port: of one that is still connecting by the older protocol; credit: bytes that we may still send to
 * the owner */
struct tunnel {
  uint32_t id, credit, port;
  int fd, connecting;
  int ended, closing, ends; /* the client sends no more; as soon as `back` is written: closed; told that no more comes */
  struct bytes back;        /* from the owner, for the client */
};

static struct tunnel tunnels[2 * TUNNELS]; /* first those out, then those in */
static struct { int fd; uint32_t port; } listeners[LISTENERS];
static int n_listeners, n_open;

/* Returns errno. */
int listen_for_tunnels(uint32_t port) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  for (int i = 0; i < n_listeners; i++)
    if (listeners[i].port == port) return 0;
  if (n_listeners == LISTENERS) return EMFILE;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  if (bind(fd, (void *)&here, sizeof here) < 0 || listen(fd, TUNNELS) < 0) {
    int error = errno;
    close(fd);
    return error;
  }
  listeners[n_listeners].fd = fd;
  listeners[n_listeners++].port = port;
  return 0;
}

static int is_ours(const struct tunnel *t) { return t < tunnels + TUNNELS; }

static struct tunnel *place(struct tunnel *from, uint32_t id) {
  for (struct tunnel *t = from; t < from + TUNNELS; t++)
    if (t->id == id) return t;
  return NULL;
}

static struct tunnel *find_tunnel(uint32_t id) {
  struct tunnel *t = place(tunnels, id);
  return t ? t : place(tunnels + TUNNELS, id);
}

static void begin(struct tunnel *t, uint32_t id, int fd) {
  *t = (struct tunnel){.id = id, .credit = WINDOW, .fd = fd};
  n_open++;
}

static void end(struct tunnel *t) {
  if (t->fd >= 0) close(t->fd);
  drop(&t->back);
  t->id = 0;
  n_open--;
}

/* At once: nothing of them stays in the kernel, as it does of connections that are closed in turn. */
void end_tunnels(void) {
  static const struct linger none = {1, 0};
  for (struct tunnel *t = tunnels; t < tunnels + 2 * TUNNELS && n_open; t++) {
    if (!t->id) continue;
    setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    end(t);
  }
}

/* Those who wait to be taken are turned away. */
void stop_listening(void) {
  while (n_listeners) close(listeners[--n_listeners].fd);
}

/* One place for each tunnel and one for each listener. A stream of which nothing is wanted now is left out, so that
 * its end does not wake us again and again. */
size_t poll_tunnels(struct pollfd *fds) {
  int may_send = out_pending() < 4 * CHUNK;
  if (!n_listeners && !n_open) return 0;
  for (int i = 0; i < 2 * TUNNELS; i++) {
    struct tunnel *t = &tunnels[i];
    int events = (may_send && t->credit && !t->ended ? POLLIN : 0) | (t->back.len ? POLLOUT : 0);
    if (t->connecting) events = POLLOUT;
    fds[i] = (struct pollfd){t->id && events ? t->fd : -1, events, 0};
  }
  for (int i = 0; i < n_listeners; i++)
    fds[2 * TUNNELS + i] = (struct pollfd){may_send && place(tunnels, 0) ? listeners[i].fd : -1, POLLIN, 0};
  return 2 * TUNNELS + n_listeners;
}

static void welcome(int i) {
  static uint32_t last;
  struct tunnel *t = place(tunnels, 0);
  if (!t) return; /* another listener's newcomer has the last place: this one waits */
  int fd = accept4(listeners[i].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  begin(t, TUNNEL | (++last & ~OWNERS), fd);
  send_frame(t->id, 'A', &listeners[i].port, 4);
}

static void answer(struct tunnel *t, uint32_t error) {
  t->connecting = 0;
  send_frame(t->id, 'F', &error, 4);
  if (error) end(t);
}

static void fail(struct tunnel *t) {
  send_frame(t->id, 'Y', NULL, 0);
  end(t);
}

static void connect_to(struct tunnel *t, const void *address, socklen_t size, int family) {
  if (t->fd >= 0) close(t->fd);
  t->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (t->fd < 0) answer(t, errno);
  else if (connect(t->fd, address, size) == 0) answer(t, 0);
  else if (errno == EINPROGRESS) t->connecting = 1;
  else answer(t, errno);
}

/* A connection has been made, or not. A server may listen by the newer protocol alone. */
static void see_how_it_went(struct tunnel *t) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0) error = errno;
  if (error == ECONNREFUSED && t->port) {
    struct sockaddr_in6 there = {.sin6_family = AF_INET6, .sin6_port = htons(t->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    t->port = 0;
    connect_to(t, &there, sizeof there, AF_INET6);
    return;
  }
  answer(t, error);
}

/* u32 port, or the path of a socket, as whoever files are reached as. An F follows. */
static void open_tunnel(uint32_t id, uint32_t port, const char *path) {
  struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  struct sockaddr_un named = {.sun_family = AF_UNIX};
  struct tunnel *t = place(tunnels + TUNNELS, 0);
  uint32_t error = t ? (path && strlen(path) >= sizeof named.sun_path ? ENAMETOOLONG : 0) : EMFILE;
  if (error) {
    send_frame(id, 'F', &error, 4);
    return;
  }
  begin(t, id, -1);
  t->port = port;
  if (!path) {
    connect_to(t, &there, sizeof there, AF_INET);
    return;
  }
  strcpy(named.sun_path, path);
  connect_to(t, &named, sizeof named, AF_UNIX);
}

static void pass_on(struct tunnel *t) {
  static char buffer[CHUNK];
  ssize_t n = read(t->fd, buffer, t->credit < CHUNK ? t->credit : CHUNK);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) {
    fail(t);
  } else if (n == 0) {
    t->ended = 1;
    send_frame(t->id, 'Z', NULL, 0);
  } else {
    t->credit -= n;
    send_frame(t->id, 'O', buffer, n);
  }
}

/* Does what was to be done when everything is written. */
static void written(struct tunnel *t) {
  if (t->back.len) return;
  if (t->ends) shutdown(t->fd, SHUT_WR);
  t->ends = 0;
  if (t->closing) end(t);
}

static void pass_back(struct tunnel *t) {
  ssize_t n = write(t->fd, t->back.at, t->back.len);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) {
    fail(t);
    return;
  }
  uint32_t passed = n;
  take(&t->back, n);
  send_frame(t->id, 'G', &passed, 4);
  written(t);
}

/* count: of the places that were polled. */
void serve_tunnels(const struct pollfd *fds, size_t count) {
  for (int i = 0; i < 2 * TUNNELS; i++) {
    struct tunnel *t = &tunnels[i];
    if (!t->id || !fds[i].revents) continue;
    if (t->connecting) {
      see_how_it_went(t);
      continue;
    }
    if (t->back.len) pass_back(t);
    if (t->id && fds[i].revents & ~POLLOUT && fds[i].events & POLLIN) pass_on(t);
  }
  for (size_t i = 2 * TUNNELS; i < count; i++)
    if (fds[i].revents) welcome(i - 2 * TUNNELS);
}

/* J open one to a port, or with more than a number, to a path; D data for the client, Z no more of it, G more may be sent,
 * K it is over: at once with those of our owner's, who knows what has been written. Those of a tunnel that has ended mean
 * nothing. */
void tunnel_frame(uint32_t id, char type, const char *p, size_t len) {
  if (type == 'J' && len == 4) {
    open_tunnel(id, u32(p), NULL);
    return;
  }
  if (type == 'J') {
    struct who who;
    const char *path = parse_who(p, len, &who);
    if (!path) _exit(65);
    act_as(&who);
    open_tunnel(id, 0, path);
    act_as(NULL);
    return;
  }
  struct tunnel *t = find_tunnel(id);
  if (!t) return;
  if (type == 'D' && t->back.len + len <= WINDOW) append(&t->back, p, len);
  else if (type == 'G' && len == 4) t->credit += u32(p);
  else if (type == 'Z') t->ends = 1;
  else if (type == 'K') t->closing = 1;
  else _exit(65);
  if (t->closing && !is_ours(t)) end(t);
  else written(t);
}
