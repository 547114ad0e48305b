/* Called with anything, calls itself with empty arguments and what stands for them in variables; then prints what it has. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
  char *empty[] = {argv[0], "", "", "", NULL}, *given[8] = {"A=1", "VERIFIER_ARGUMENT=one", "VERIFIER_ARGUMENT="};
  given[3] = "VERIFIER_ARGUMENT=th=ree";
  for (char **variable = environ; *variable; variable++)
    if (!strncmp(*variable, "LD_PRELOAD=", 11)) given[4] = *variable;
  if (argc == 2) syscall(SYS_execve, "/proc/self/exe", empty, given);
  for (int i = 1; i < argc; i++) printf("<%s>", argv[i]);
  for (char **variable = environ; *variable; variable++)
    if (strncmp(*variable, "LD_PRELOAD=", 11)) printf(" %s", *variable);
  puts("");
  return 0;
}
