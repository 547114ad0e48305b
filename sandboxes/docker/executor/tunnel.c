/* Connections out of a sandbox that has no network: what connects to a port on loopback is passed on to our owner,
 * who decides where it may lead. Each side may be WINDOW bytes ahead of what the other has passed on. */
#include "executor.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WINDOW = 128 << 10 };

struct tunnel {
  uint32_t id, credit; /* id 0: a free place; credit: bytes that we may still send to the owner */
  int fd, ended, closing; /* ended: the client sends no more; closing: as soon as `back` is written */
  struct bytes back;   /* from the owner, for the client */
};

static struct tunnel tunnels[TUNNELS];
static int listener = -1;

void listen_for_tunnels(int port) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0 || bind(listener, (void *)&here, sizeof here) < 0 || listen(listener, TUNNELS) < 0) _exit(72);
}

static void end(struct tunnel *t) {
  close(t->fd);
  drop(&t->back);
  t->id = 0;
}

void end_tunnels(void) {
  for (struct tunnel *t = tunnels; t < tunnels + TUNNELS; t++)
    if (t->id) end(t);
}

/* One place for each tunnel and one for newcomers. A stream of which nothing is wanted now is left out, so that
 * its end does not wake us again and again. */
size_t poll_tunnels(struct pollfd *fds) {
  int may_send = out_pending() < 4 * CHUNK, free = 0;
  if (listener < 0) return 0;
  for (int i = 0; i < TUNNELS; i++) {
    struct tunnel *t = &tunnels[i];
    int events = (may_send && t->credit && !t->ended ? POLLIN : 0) | (t->back.len ? POLLOUT : 0);
    fds[i] = (struct pollfd){t->id && events ? t->fd : -1, events, 0};
    free |= !t->id;
  }
  fds[TUNNELS] = (struct pollfd){may_send && free ? listener : -1, POLLIN, 0};
  return TUNNELS + 1;
}

static void welcome(void) {
  static uint32_t last;
  struct tunnel *t = tunnels;
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  while (t < tunnels + TUNNELS && t->id) t++;
  if (fd < 0) return;
  if (t == tunnels + TUNNELS) {
    close(fd);
    return;
  }
  *t = (struct tunnel){.id = TUNNEL | ++last, .credit = WINDOW, .fd = fd};
  send_frame(t->id, 'A', NULL, 0);
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

void serve_tunnels(const struct pollfd *fds) {
  for (int i = 0; i < TUNNELS; i++) {
    if (tunnels[i].id && fds[i].revents && tunnels[i].back.len) pass_back(&tunnels[i]);
    if (tunnels[i].id && fds[i].revents & ~POLLOUT && fds[i].events & POLLIN) pass_on(&tunnels[i]);
  }
  if (fds[TUNNELS].revents) welcome();
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
