/* The reset of a sandbox: given the files of its start, it goes on as one that was just started.
 *
 * Whatever runs in the container is a child of ours as soon as its parent has ended, so where we have no child left,
 * nothing runs. Signal 9 to all is one step for the kernel: nobody is forked past it. */
#include "executor.h"
#include <errno.h>
#include <signal.h>

static uint32_t request;
static int under_way, devices;

/* Its F follows. new_devices: /dev/null is another one than before. */
void begin_reset(uint32_t id, int new_devices) {
  request = id;
  under_way = 1;
  devices = new_devices;
}

/* To be called again and again. port: where connections are passed on from the beginning, 0 for nowhere. */
void continue_reset(uint32_t port) {
  if (!under_way) return;
  end_tunnels(); /* before their clients, so that nothing of them stays */
  stop_listening();
  kill(-1, SIGKILL);
  if (reap()) return; /* the end of a child wakes us */
  under_way = 0;
  for (struct job *j = jobs; j; j = j->next) forget(j);
  forget_sessions();
  uint32_t error = devices ? hold_nothing() : 0;
  if (!error && port) error = listen_for_tunnels(port);
  send_frame(request, 'F', &error, 4);
}
