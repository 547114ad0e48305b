/* What root's programs are called with, kept from who looks into /proc. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <stddef.h>

#define HIDDEN "VERIFIER_ARGUMENT=" /* a variable for each argument; supervise.py reads them as well */

#pragma GCC visibility push(hidden)

/* What this program was called with, without its name. */
extern char **words;
extern size_t word_count;

/* The room that copies of arguments need; 0 where they are none, or too much. */
size_t room_for(char *const argv[]);

/* Gives a program that loads this library its arguments by variables: argv gets empty ones in their place. env is
 * continued from `kept`, and needs as many more places. Returns how many variables there are then. */
size_t hide(const char *path, const char **argv, const char **env, size_t kept, char *room);

#pragma GCC visibility pop
#endif
