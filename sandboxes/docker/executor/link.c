/* A shorter way to our owner, past the Docker daemon: a socket of ours, which it reaches through /proc where it runs as
 * root on the same machine. From then on that is our standard input and output.
 *
 * With "link=NAME" there is no other way: a socket of that name in the network namespace, for as long as we live. A new
 * connection takes the place of the last one.
 *
 * Whoever connects from inside of the container is turned away: only a process outside has no id in here. */
#include "executor.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BIND_TRIES = 100 };

static int listener = -1;
static int empty = -1, linked; /* of "link=NAME" */
static struct sockaddr_un place = {.sun_family = AF_UNIX};

int link_listener(void) { return listener; }

void withdraw_link(void) {
  if (listener < 0 || is_lasting()) return;
  unlink(place.sun_path);
  close(listener);
  listener = -1;
}

uint32_t abstract_name(struct sockaddr_un *at, const char *name) {
  *at = (struct sockaddr_un){.sun_family = AF_UNIX};
  strncpy(at->sun_path + 1, name, sizeof at->sun_path - 2);
  return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(at->sun_path + 1);
}

/* Returns -1 where it can't be. */
int listen_for_owner(const char *name) {
  socklen_t size = abstract_name(&place, name);
  empty = open("/dev/null", O_RDWR | O_CLOEXEC);
  listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (empty < 0 || listener < 0) return -1;
  for (int tries = 0; bind(listener, (void *)&place, size) < 0; tries++) { /* see `keep_on` in pod.c */
    if (tries == BIND_TRIES) return -1;
    usleep(10000);
  }
  lose_link();
  return listen(listener, 8);
}

int is_lasting(void) { return empty >= 0; }

int is_linked(void) { return linked || !is_lasting(); }

/* The owner's end is gone; where no other can come, so is our use. */
void lose_link(void) {
  if (!is_lasting()) _exit(0);
  if (dup2(empty, 0) < 0 || dup2(empty, 1) < 0) _exit(72);
  linked = 0;
}

/* Returns errno. */
int offer_link(const char *path) {
  if (is_lasting()) return ENOTSUP;
  withdraw_link();
  if (strlen(path) >= sizeof place.sun_path) return ENAMETOOLONG;
  strcpy(place.sun_path, path);
  listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return errno;
  if (bind(listener, (void *)&place, sizeof place) == 0 && listen(listener, 1) == 0) return 0;
  int error = errno;
  withdraw_link();
  return error;
}

/* Returns whether the owner has come. */
int take_link(void) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return 0;
  int ours = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0;
  if (ours) {
    withdraw_link();
    linked = 1;
    if (dup2(fd, 0) < 0 || dup2(fd, 1) < 0) _exit(72);
  }
  close(fd);
  return ours;
}
