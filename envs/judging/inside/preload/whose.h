/* Paths, and whose the files are to which they lead. */
#ifndef WHOSE_H
#define WHOSE_H

#include <stddef.h>
#include <sys/stat.h>

#pragma GCC visibility push(hidden)

int starts(const char *text, const char *with);
int below(const char *path, const char *folder);
const char *base(const char *path);
int is_one_of(const char *word, const char *words); /* words: a space before and behind each */

/* Status of a path, or of a descriptor that is not negative; 0 where there is one. */
int look(int fd, const char *path, struct statx *s);

/* Whether two files are one. */
int is_one_file(const struct statx *one, const struct statx *other);

/* The beginning of a file, and 0 behind it; how much that is, 0 also where there is none. Waits at no pipe. */
size_t read_start(const char *path, char *to, size_t size);

/* Writes a number as digits, and 0 behind them. */
void write_number(char *to, unsigned long number);

/* The path behind a file descriptor; "" where there is none. */
void path_of(int fd, char *real, size_t size);

/* The name of the program that this is, and of that to which a link of the kernel's leads. place: for its path. */
const char *program(char *place, size_t size);
const char *program_of(const char *link, char *place, size_t size);

void read_workdir(char *workdir, size_t size);

enum { OF_IMAGE, OF_TESTS, JUDGED };

/* Whose program or script a file is: JUDGED where judged code may have made it. */
int whose(const char *path);
int whose_at(int folder, const char *path);
int is_judged(const char *path);

#pragma GCC visibility pop
#endif
