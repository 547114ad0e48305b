/* Everyone can read in /proc what a program is called with, so judged code that runs beside `grep -q 42` could print 42.
 * Variables can be read by root alone: a program that loads this library is called with empty arguments, and gets its own
 * from variables before its first line. */
#define _GNU_SOURCE
#include "arguments.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "whose.h"

#define MOST 65536 /* bytes of all arguments; the system takes 131,072 as one */
#ifdef __x86_64__
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

extern char **environ;
extern const char *gnu_get_libc_version(void) __attribute__((weak));
char **words;
size_t word_count;

size_t room_for(char *const argv[]) {
  size_t room = 0;
  for (size_t i = 1; argv[0] && argv[i] && room <= MOST; i++) room += sizeof HIDDEN + strlen(argv[i]);
  return room <= MOST ? room : 0;
}

/* Whether a program, or what interprets it, loads this library: it is dynamic, and of this processor. */
static int loads_this(const char *path, int deep) {
  char start[2048];
  size_t n = read_start(path, start, sizeof start);
  if (n > 2 && !memcmp(start, "#!", 2)) {
    char *name = start + 2 + strspn(start + 2, " \t");
    name[strcspn(name, " \t\n")] = 0;
    return deep < 4 && loads_this(name, deep + 1);
  }
  Elf64_Ehdr head;
  Elf64_Phdr part;
  memcpy(&head, start, sizeof head);
  if (n < sizeof head || memcmp(start, ELFMAG, SELFMAG) || start[EI_CLASS] != ELFCLASS64 || head.e_machine != MACHINE ||
      head.e_phoff > n)
    return 0;
  for (size_t i = 0, at = head.e_phoff; i < head.e_phnum && at + sizeof part <= n; i++, at += sizeof part) {
    memcpy(&part, start + at, sizeof part);
    if (part.p_type == PT_INTERP) return 1;
  }
  return 0;
}

size_t hide(const char *path, const char **argv, const char **env, size_t kept, char *room) {
  if (!loads_this(path, 0) || syscall(SYS_faccessat, AT_FDCWD, "/verifier/preload.so", R_OK)) return kept; /* chroot has none */
  for (size_t i = 1; argv[i]; i++) {
    env[kept++] = room;
    strcpy(room, HIDDEN);
    strcpy(room + strlen(HIDDEN), argv[i]);
    room += strlen(room) + 1;
    argv[i] = "";
  }
  env[kept] = NULL;
  return kept;
}

/* glibc calls this with what main is called with; musl with nothing, but `environ` is set, and before the variables lie
 * NULL, the arguments, and their number. */
__attribute__((constructor)) static void find_words(int argc, char **argv, char **env) {
  size_t n = argc, hidden = 0, kept = 0;
  if (!gnu_get_libc_version) {
    env = environ;
    for (n = 0; (size_t)env[-2 - (ptrdiff_t)n] != n;) n++;
    argv = env - 1 - n;
  }
  for (size_t i = 0; env[i]; i++) hidden += !strncmp(env[i], HIDDEN, strlen(HIDDEN));
  for (size_t i = 0, next = hidden < n ? n - hidden : n; env[i]; i++) {
    if (strncmp(env[i], HIDDEN, strlen(HIDDEN))) env[kept++] = env[i];
    else if (next < n) argv[next++] = env[i] + strlen(HIDDEN);
  }
  env[kept] = NULL;
  words = argv + 1;
  word_count = n ? n - 1 : 0;
}
