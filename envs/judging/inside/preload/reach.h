/* Where a path of root's leads. Paths are as in openat. */
#ifndef REACH_H
#define REACH_H

#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Whether a path that root is to write leads to the verifier's files by a link that judged code may have made. anew: in
 * the place of a file that judged code can write comes one of root's, who would take for its own what it finds there. */
int leads_astray(int folder, const char *path, int anew);

/* Whether a file of the task's is to go for what an archive of judged code's holds, or for a name that `xargs` has read. */
int is_to_go(int folder, const char *path);

/* Keeps what root has made below the working directory in its place: judged code may make files there, and take away
 * what is in its way. */
void hold(int fd);

/* Whether what root has opened to read is none that judged code can read, and is found by a link that it made. */
int is_planted(int folder, const char *path, int fd);

/* Whether to read a path would wait for judged code, which meanwhile looks what it is asked. */
int is_bait(int folder, const char *path);

/* Whether a program unpacks or copies a link to the tests. target: as the link is written. */
int copies_link_to_tests(const char *target);

/* Whether a program unpacks another name of a file of the task's or the verifier's. */
int unpacks_of_tests(int folder, const char *path);

/* Who judged code runs as. */
int owner_of_judged(void);

#pragma GCC visibility pop
#endif
