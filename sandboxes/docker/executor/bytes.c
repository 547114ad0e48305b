/* Buffers, frames out, and output that is kept in a fixed amount of memory. */
#include "executor.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static struct bytes out;
static size_t out_sent;

int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

uint32_t u32(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }

/* Joins texts, the last of which is NULL. Returns the length of the whole, 0 where there is no room for it. */
size_t join(char *to, size_t size, ...) {
  va_list texts;
  size_t n = 0;
  va_start(texts, size);
  for (const char *text; (text = va_arg(texts, const char *)) && n < size;)
    while (n < size && *text) to[n++] = *text++;
  va_end(texts);
  to[n < size ? n : 0] = 0;
  return n < size ? n : 0;
}

/* Makes a name that nobody can guess. Returns whether it could. */
int make_name(char name[NAME_SIZE]) {
  uint64_t bits;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) return 0;
  for (int i = 0; i < NAME_SIZE - 1; i++, bits >>= 4) name[i] = "0123456789abcdef"[bits & 15];
  name[NAME_SIZE - 1] = 0;
  return 1;
}

void reserve(struct bytes *b, size_t more, size_t max) {
  if (b->len + more <= b->cap) return;
  size_t cap = b->cap ? b->cap : 4096;
  while (cap < b->len + more) cap *= 2;
  if (max && cap > max) cap = max;
  char *at = realloc(b->at, cap);
  if (!at) _exit(70); /* the container's memory is used up; the owner sees the stream end */
  b->at = at;
  b->cap = cap;
}

void append(struct bytes *b, const void *data, size_t len) {
  if (!len) return;
  reserve(b, len, 0);
  memcpy(b->at + b->len, data, len);
  b->len += len;
}

/* Takes away the first ones. */
void take(struct bytes *b, size_t n) {
  if (!n) return;
  b->len -= n;
  memmove(b->at, b->at + n, b->len);
}

void drop(struct bytes *b) {
  free(b->at);
  memset(b, 0, sizeof *b);
}

/* ---- frames out ---- */

void send_bytes(const void *data, size_t len) { append(&out, data, len); }

void send_frame(uint32_t id, char type, const void *data, uint32_t len) {
  char h[HEADER];
  memcpy(h, &len, 4);
  memcpy(h + 4, &id, 4);
  h[8] = type;
  append(&out, h, HEADER);
  append(&out, data, len);
}

static void send_chunks(uint32_t id, char type, const char *data, size_t len) {
  while (len) {
    size_t n = len < CHUNK ? len : CHUNK;
    send_frame(id, type, data, n);
    data += n;
    len -= n;
  }
}

void send_output(uint32_t id, char type, struct output *o) {
  send_chunks(id, type, o->head.at, o->head.len);
  send_chunks(id, type, o->tail.at + o->ring, o->tail.len - o->ring);
  send_chunks(id, type, o->tail.at, o->ring);
  drop(&o->head);
  drop(&o->tail);
}

size_t out_pending(void) { return out.len - out_sent; }

void flush_out(void) {
  while (out_pending()) {
    ssize_t n = write(1, out.at + out_sent, out_pending());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      lose_link();
      continue;
    }
    out_sent += n;
  }
  if (out_sent < out_pending()) return;
  take(&out, out_sent); /* also of an owner who never catches up, at no more than was sent of it */
  out_sent = 0;
  if (out.len) return;
  if (out.cap > 16 * CHUNK) drop(&out);
}

/* ---- bounded output ---- */

void bound(struct output *o, uint32_t max) {
  o->head_max = max / 2;
  o->tail_max = max - max / 2;
}

void keep(struct output *o, const char *data, size_t len) {
  size_t n = o->head_max - o->head.len;
  if (n > len) n = len;
  if (n) {
    reserve(&o->head, n, o->head_max);
    append(&o->head, data, n);
    data += n;
    len -= n;
  }
  if (len > o->tail_max) {
    o->dropped += len - o->tail_max;
    data += len - o->tail_max;
    len = o->tail_max;
  }
  n = o->tail_max - o->tail.len;
  if (n > len) n = len;
  if (n) {
    reserve(&o->tail, n, o->tail_max);
    append(&o->tail, data, n);
    data += n;
    len -= n;
  }
  while (len) { /* the tail is full: overwrite its oldest bytes */
    n = o->tail_max - o->ring;
    if (n > len) n = len;
    memcpy(o->tail.at + o->ring, data, n);
    o->ring = (o->ring + n) % o->tail_max;
    o->dropped += n;
    data += n;
    len -= n;
  }
}

void say(struct job *j, const char *what, int error) {
  const char *parts[] = {"sandbox: ", what, error ? ": " : "", error ? strerror(error) : "", "\n"};
  for (int i = 0; i < 5; i++) {
    keep(&j->output, parts[i], strlen(parts[i]));
    if (j->split) keep(&j->apart[1], parts[i], strlen(parts[i]));
  }
}
