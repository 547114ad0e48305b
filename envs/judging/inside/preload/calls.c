/* What test.sh starts as root, however it does that (timeout, env, find -exec, a program that it has just compiled),
 * runs as nobody unless it is a program of the image that obeys nothing which it reads (`INERT`), or one of /tests.
 *
 * This library is loaded into every dynamic program below test.sh and stands before the C library's functions that start
 * programs (exec.c) and open files (files.c). A program below the working directory, or one that has changed since the
 * verifier's sandbox was made, is judged code: it is handed to its wrapper, or to `judged`. So is whatever is not known
 * to be inert, since it may interpret what it finds in the working directory (a Makefile, a script, its configuration).
 * Shells go to their wrapper, unless they run a script of the task or the image. Nothing of root's is told by its
 * environment to load what is judged. The library needs no C library of its own, so that it fits glibc and musl of any
 * version. It allocates nothing: after a vfork the parent's memory is ours too.
 */
#define _GNU_SOURCE
#include "calls.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arguments.h"
#include "whose.h"

#define SELF "/verifier/preload.so"
#define BIN "/verifier/bin/"
#define FUNCTIONS "BASH_ENV=/verifier/functions.sh"
#define OWN_CALL "VERIFIER_OWN_CALL=" /* set by a wrapper for the one program that it runs as root, to what root alone can read */

/* Programs that run nothing of what they read, or run it by exec alone. What is not among them is judged. */
static const char INERT[] =
    " [ arch b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date dd df dir dirname du echo"
    " env expand expr factor false fmt fold groups head hostid hostname id install join link ln logname ls md5sum mkdir"
    " mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk pr printenv printf ptx pwd readlink realpath rm"
    " rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac"
    " tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink uptime users vdir wc who whoami yes"
    " cmp diff diff3 sdiff find xargs grep egrep fgrep rgrep zgrep gzip gunzip zcat zcmp zdiff bzip2 bunzip2 bzcat xz unxz"
    " xzcat lzma unlzma zstd unzstd zstdcat tar unzip zip zipinfo file patch git jq curl wget which whereis ps pgrep pidof"
    " kill killall pkill free ss netstat lsof ip ifconfig ping nc bc column hexdump xxd strings nm objdump readelf size ar as"
    " ld ranlib strip gcc g++ cc c++ cpp cc1 cc1plus collect2 lto-wrapper lto1 clang clang++ su runuser setpriv gosu su-exec"
    " chroot setsid flock ionice taskset chrt prlimit time tput clear locale getconf getent getopt iconv ldconfig apt apt-get"
    " apt-cache dpkg dpkg-deb dpkg-query apk yum dnf microdnf rpm ssh-keygen useradd usermod groupadd chpasswd mount umount"
    " sysctl rev tree uuidgen logger lscpu mountpoint cal ";

/* What a wrapper runs as root itself, where it is the image's. */
static const char ACTING[] = " cp mv ln install awk gawk mawk nawk sed curl wget apt apt-get apk ";

static int is_shell(const char *name) { return is_one_of(name, " sh bash dash ash ksh zsh "); }

static int wrapper_of(const char *name, char *place, size_t size) {
  if (strlen(BIN) + strlen(name) >= size) return 0;
  strcpy(place, BIN);
  strcat(place, name);
  return syscall(SYS_faccessat, AT_FDCWD, place, X_OK) == 0;
}

/* The name of the interpreter that a script's first line gives, "" where there is none. */
static void interpreter(const char *path, char *name, size_t size) {
  char line[256];
  read_start(path, line, sizeof line);
  line[strcspn(line, "\n")] = 0;
  name[0] = 0;
  if (!starts(line, "#!")) return;
  for (char *word = line + 2;;) {
    word += strspn(word, " \t");
    size_t length = strcspn(word, " \t");
    char *next = word + length + (word[length] != 0);
    word[length] = 0;
    if (!length || strlen(base(word)) >= size) return;
    strcpy(name, base(word));
    if (strcmp(name, "env")) return;
    word = next + (starts(next, "-S ") ? 3 : 0);
  }
}

size_t length(char *const list[]) {
  size_t n = 0;
  while (list && list[n]) n++;
  return n;
}

/* The script that a shell is to run, NULL for none. */
static const char *script_of(char *const argv[]) {
  for (size_t i = argv[0] != NULL; argv[i] && argv[i - 1]; i++) {
    size_t n = strlen(argv[i]);
    if ((argv[i][0] != '-' && argv[i][0] != '+') || !argv[i][1]) return argv[i];
    if (argv[i][1] != '-' && strchr(argv[i], 'c')) return NULL;
    int takes = argv[i][1] == '-' ? is_one_of(argv[i], " --rcfile --init-file ") : strchr("oO", argv[i][n - 1]) != NULL;
    if (takes && argv[i + 1]) i++;
  }
  return NULL;
}

/* Whether a shell is to run a script of judged code. */
static int runs_judged(const char *path, char *const argv[]) {
  const char *file = is_shell(base(path)) ? script_of(argv) : NULL;
  return file && is_judged(file);
}

/* Whether what `timeout` is to run is a path of judged code. */
static int times_judged(char *const argv[]) {
  size_t i = argv[0] != NULL;
  while (argv[i] && argv[i][0] == '-') i += is_one_of(argv[i], " -k -s --kill-after --signal ") && argv[i + 1] ? 2 : 1;
  return argv[i] && argv[i + 1] && strchr(argv[i + 1], '/') && is_judged(argv[i + 1]);
}

/* Whether an argument reads like an option and is the name of a file here: `*` may have found it in what is judged. */
static int has_planted_option(char *const argv[]) {
  char here[4096], workdir[4096];
  for (size_t i = 1; argv[0] && argv[i]; i++)
    if (argv[i][0] == '-' && argv[i][1] && syscall(SYS_faccessat, AT_FDCWD, argv[i], F_OK) == 0) {
      read_workdir(workdir, sizeof workdir);
      if (syscall(SYS_getcwd, here, sizeof here) > 0 && below(here, workdir)) return 1;
    }
  return 0;
}

/* Whether a file of the task's is to be compared with itself: judged code has said where to look. */
static int compares_with_itself(const char *name, char *const argv[]) {
  struct statx one, other;
  if (!is_one_of(name, " cmp diff diff3 sdiff comm ")) return 0;
  for (size_t i = 1; argv[0] && argv[i]; i++) {
    if (argv[i][0] == '-' || look(AT_FDCWD, argv[i], &one) < 0 || whose(argv[i]) != OF_TESTS) continue;
    for (size_t k = i + 1; argv[k]; k++)
      if (argv[k][0] != '-' && look(AT_FDCWD, argv[k], &other) == 0 && is_one_file(&one, &other)) return 1;
  }
  return 0;
}

/* Whether a program is told to write a reward, and the task's files do not speak of it: judged code has said so, where
 * test.sh runs what that wrote down (`$(cat command.txt)`). */
static int is_told_to_reward(const char *name, char *const argv[]) {
  char words[65536];
  size_t i = 1, length = strlen(name);
  while (argv[0] && argv[i] && !strstr(argv[i], "reward.")) i++;
  if (!argv[0] || !argv[i]) return 0;
  size_t n = read_start("/verifier/writers", words, sizeof words);
  if (!n || n == sizeof words - 1) return 0;
  for (char *word = words; (word = strstr(word, name)); word += length)
    if ((word == words || word[-1] == '\n') && word[length] == '\n') return 0;
  return 1;
}

/* The image's own program of a name; 0 where it has none. */
static int standard(const char *name, char *place, size_t size) {
  static const char *const folders[] = {"/usr/local/bin/", "/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (strlen(folders[i]) + strlen(name) >= size) return 0;
    strcpy(place, folders[i]);
    strcat(place, name);
    if (syscall(SYS_faccessat, AT_FDCWD, place, X_OK) == 0 && whose(place) == OF_IMAGE) return 1;
  }
  return 0;
}

/* Whether a variable has a program load or run what it names, or write where it says. */
static int is_setting(const char *variable) {
  static const char *const names[] = {"LD_", "BASH_FUNC_", "GLIBC_TUNABLES=", "GCONV_PATH=", "LOCPATH=", "PS4=", "SHELLOPTS=",
    "BASHOPTS=", "TAR_OPTIONS=", "CURL_HOME=", "WGETRC=", "GIT_DIR=", "GIT_WORK_TREE=", "GIT_CONFIG_", "PERL5", "PYTHONHOME=",
    "PYTHONPYCACHEPREFIX=", "PYTHONPLATLIBDIR=", "PYTHONUSERBASE=", "PYTHONSTARTUP=",
    "POSIXLY_CORRECT=", "FUNCNEST=", "BASH_COMPAT=", "CDPATH=", "TMOUT=", "GREP_OPTIONS=", "BROWSER=", OWN_CALL, HIDDEN};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (starts(variable, names[i])) return 1;
  return 0;
}

/* Whether a variable has a program of root's read settings where judged code may have them, or count otherwise. */
static int is_setting_of(const char *name, const char *variable) {
  return (starts(variable, "XDG_CONFIG_HOME=") && is_one_of(name, " curl wget git ")) ||
         (starts(variable, "MAGIC=") && is_one_of(name, " file ")) || (starts(variable, "ZDOTDIR=") && is_one_of(name, " zsh ")) ||
         (strstr(variable, "BLOCK") && is_one_of(name, " du df ls dir vdir "));
}

static int is_of_git(const char *variable) { return starts(variable, "GIT_DIR=") || starts(variable, "GIT_WORK_TREE="); }

/* What root's program is told by its environment, without what would load or run judged code before its first line. What
 * git says to programs of its own stays. */
static size_t keep_harmless(struct call *c, const char *path, char *const envp[]) {
  char workdir[4096];
  size_t kept = 0;
  int shell = 0, by_git = !strcmp(program(workdir, sizeof workdir), "git");
  read_workdir(workdir, sizeof workdir);
  for (size_t i = 0; envp && envp[i]; i++) {
    if (starts(envp[i], "LD_LIBRARY_PATH=") && strlen(envp[i]) < sizeof c->libraries) { /* for what becomes nobody */
      strcpy(c->libraries, "JUDGED_LIBRARIES=");
      strncat(c->libraries, envp[i] + 16, sizeof c->libraries - 18);
      c->env[kept++] = c->libraries;
    } else if (starts(envp[i], "BASH_ENV=") || starts(envp[i], "ENV=")) {
      if (!strcmp(envp[i], FUNCTIONS) && ++shell) c->env[kept++] = envp[i];
    } else if (starts(envp[i], "HOME=")) { /* of which root's programs read their settings */
      if (!below(envp[i] + 5, workdir) && !below(envp[i] + 5, "/tmp")) c->env[kept++] = envp[i];
    } else if ((!is_setting(envp[i]) || (by_git && is_of_git(envp[i]))) && !is_setting_of(base(path), envp[i])) {
      c->env[kept++] = envp[i];
    }
  }
  c->env[kept++] = "LD_PRELOAD=" SELF;
  if (!shell) c->env[kept++] = FUNCTIONS; /* or a bash that is given no environment would source what is judged */
  return kept;
}

static const char *as_judged(struct call *c, const char *path, char *const argv[]) {
  char script[64];
  const char *name = base(path);
  int from = whose(path);
  interpreter(path, script, sizeof script);
  if (from == JUDGED && argv[0] && !strchr(argv[0], '/') && is_one_of(name, INERT) &&
      standard(name, c->place, sizeof c->place))
    return has_planted_option(argv) ? BIN "judged" : c->place; /* it was looked for in PATH, and what is judged came first */
  int wrapped = wrapper_of(name, c->place, sizeof c->place);
  if (is_shell(name)) {
    if (from == JUDGED || runs_judged(path, argv)) return BIN "judged";
    return script_of(argv) || !wrapped ? path : c->place;
  }
  if (from == JUDGED) return wrapped && !is_one_of(name, ACTING) ? c->place : BIN "judged";
  if (!strcmp(name, "timeout") && times_judged(argv)) return BIN "judged"; /* root may not kill it */
  if (wrapped) return c->place;
  if (is_one_of(name, INERT) && is_told_to_reward(name, argv)) return BIN "judged";
  if (compares_with_itself(name, argv) && standard("false", c->place, sizeof c->place)) return c->place;
  if (from == OF_TESTS && (!*script || is_shell(script))) return path;
  if (script[0] && !is_shell(script) && wrapper_of(script, c->place, sizeof c->place)) return BIN "judged";
  return from == OF_TESTS || (is_one_of(name, INERT) && !has_planted_option(argv)) ? path : BIN "judged";
}

/* Whether what a program of root's is called with may say what is expected. `pkill -f` finds the others, as servers. */
static int is_secretive(const char *path, const char *const *argv) {
  const char *name = base(path);
  if (is_one_of(name, INERT) || is_one_of(name, ACTING) || is_shell(name)) return 1;
  for (size_t i = 1; argv[i]; i++)
    if (!strcmp(argv[i], "-c") && argv[i + 1] && strpbrk(argv[i + 1], " (;\n") && strcmp(path, BIN "judged")) return 1;
  return whose(path) == OF_TESTS && !starts(path, BIN);
}

/* What a wrapper says of the program that it runs as root, "" or ":read"; NULL where no wrapper has said it. */
static const char *of_wrapper(const char *said) {
  char own[64];
  if (read_start("/verifier/own", own, sizeof own) < 16) return NULL;
  own[strcspn(own, "\n")] = 0;
  return starts(said, own) ? said + strlen(own) : NULL;
}

void decide(struct call *c, const char *path, char *const argv[], char *const envp[]) {
  size_t n = 0, kept = 0;
  int root = syscall(SYS_geteuid) == 0;
  const char *own = NULL;
  for (size_t i = 0; envp && envp[i]; i++) {
    if (starts(envp[i], OWN_CALL)) own = root ? of_wrapper(envp[i] + strlen(OWN_CALL)) : NULL;
    else if (!root && strcmp(envp[i], "LD_PRELOAD=" SELF)) c->env[kept++] = envp[i];
  }
  if (root) kept = keep_harmless(c, path, envp);
  c->env[kept] = NULL;
  c->path = path;
  int there = syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0; /* a search through PATH tries them all */
  if (root && there && !starts(path, "/verifier/")) {
    if (!own) c->path = as_judged(c, path, argv);
    else if (is_judged(path) || (strcmp(own, ":read") && runs_judged(path, argv))) c->path = BIN "judged";
  }
  if (starts(c->path, "/verifier/") && c->path != path) {
    c->argv[n++] = c->path;
    c->argv[n++] = "/verifier/call";
    c->argv[n++] = path;
    if (argv[0]) argv++;
  }
  while (*argv) c->argv[n++] = *argv++;
  c->argv[n] = NULL;
  if (root && there && c->room && is_secretive(c->path, c->argv)) hide(c->path, c->argv, c->env, kept, c->room);
}
