/* What becomes of a call of exec. */
#ifndef CALLS_H
#define CALLS_H

#include <stddef.h>

#pragma GCC visibility push(hidden)

/* A call of exec and what becomes of it: room for three more arguments, three more variables, and the arguments as such. */
struct call {
  const char *path, **argv, **env;
  char place[256], libraries[4096], *room;
};

size_t length(char *const list[]);
void decide(struct call *c, const char *path, char *const argv[], char *const envp[]);

#pragma GCC visibility pop
#endif
