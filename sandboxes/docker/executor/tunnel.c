/* Connections out of a sandbox that has no network: what connects to one of our ports on loopback is passed on to our
 * owner, who decides where it may lead. Each side may be WINDOW bytes ahead of what the other has passed on. */
#include "executor.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tunnel {
  uint32_t id, credit; /* id 0: a free place; credit: bytes that we may still send to the owner */
  int fd, ended, closing; /* ended: the client sends no more; closing: as soon as `back` is written */
  struct bytes back;   /* from the owner, for the client */
};

static struct tunnel tunnels[TUNNELS];
static struct { int fd; uint32_t port; } listeners[LISTENERS];
static int n_listeners;

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

static void end(struct tunnel *t) {
  close(t->fd);
  drop(&t->back);
  t->id = 0;
}

/* At once: nothing of them stays in the kernel, as it does of connections that are closed in turn. */
void end_tunnels(void) {
  static const struct linger none = {1, 0};
  for (struct tunnel *t = tunnels; t < tunnels + TUNNELS; t++) {
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
  int may_send = out_pending() < 4 * CHUNK, free = 0;
  if (!n_listeners) return 0;
  for (int i = 0; i < TUNNELS; i++) {
    struct tunnel *t = &tunnels[i];
    int events = (may_send && t->credit && !t->ended ? POLLIN : 0) | (t->back.len ? POLLOUT : 0);
    fds[i] = (struct pollfd){t->id && events ? t->fd : -1, events, 0};
    free |= !t->id;
  }
  for (int i = 0; i < n_listeners; i++)
    fds[TUNNELS + i] = (struct pollfd){may_send && free ? listeners[i].fd : -1, POLLIN, 0};
  return TUNNELS + n_listeners;
}

static void welcome(int i) {
  static uint32_t last;
  struct tunnel *t = tunnels;
  while (t < tunnels + TUNNELS && t->id) t++;
  if (t == tunnels + TUNNELS) return; /* another listener's newcomer has the last place: this one waits */
  int fd = accept4(listeners[i].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  *t = (struct tunnel){.id = TUNNEL | ++last, .credit = WINDOW, .fd = fd};
  send_frame(t->id, 'A', &listeners[i].port, 4);
}

static void fail(struct tunnel *t) {
  send_frame(t->id, 'Y', NULL, 0);
  end(t);
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

static void pass_back(struct tunnel *t) {
  ssize_t n = write(t->fd, t->back.at, t->back.len);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) {
    fail(t);
    return;
  }
  uint32_t passed = n;
  t->back.len -= n;
  memmove(t->back.at, t->back.at + n, t->back.len);
  send_frame(t->id, 'G', &passed, 4);
  if (t->closing && !t->back.len) end(t);
}

/* count: of the places that were polled. */
void serve_tunnels(const struct pollfd *fds, size_t count) {
  for (int i = 0; i < TUNNELS; i++) {
    if (tunnels[i].id && fds[i].revents && tunnels[i].back.len) pass_back(&tunnels[i]);
    if (tunnels[i].id && fds[i].revents & ~POLLOUT && fds[i].events & POLLIN) pass_on(&tunnels[i]);
  }
  for (size_t i = TUNNELS; i < count; i++)
    if (fds[i].revents) welcome(i - TUNNELS);
}

/* D data for the client, G more may be sent, K no more will come. Those of a tunnel that has ended mean nothing. */
void tunnel_frame(uint32_t id, char type, const char *p, size_t len) {
  struct tunnel *t = tunnels;
  while (t < tunnels + TUNNELS && t->id != id) t++;
  if (t == tunnels + TUNNELS) return;
  if (type == 'D' && t->back.len + len <= WINDOW) append(&t->back, p, len);
  else if (type == 'G' && len == 4) t->credit += u32(p);
  else if (type == 'K') t->closing = 1;
  else _exit(65);
  if (t->closing && !t->back.len) end(t);
}
