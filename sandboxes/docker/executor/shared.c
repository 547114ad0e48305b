/* What commands could take from other sandboxes, hide from the disk limit, or hold us up with: a filter of their system
 * calls, beside the engine's own. Who makes these calls must do without them on many a machine already.
 *
 *   io_uring_*                       ENOSYS        counted by user id, and past all other filters
 *   what the engine's filter is      ENOSYS        as from an older kernel, for which a libc has another way: at EPERM it
 *   too old to know of                             gives up
 *   socket(AF_VSOCK)                 EAFNOSUPPORT  its ports are the machine's
 *   socket(AF_NETLINK, …, AUDIT)     EPROTONOSUPPORT  the log is the machine's; `su` and its like go on without
 *   fallocate past the file's end,   EOPNOTSUPP    room on the disk of which no file's size tells
 *   and the same by ioctl
 *   fcntl(F_SETLEASE, F_SETDELEG)    EINVAL        whoever opens the file from outside waits for 45 s
 *   setuid(OWN_UID) and the like     EPERM         who is process 1's user may stop monitors and take its limits away
 */
#include "executor.h"
#include <errno.h>
#include <sys/prctl.h>

/* linux/filter.h, linux/seccomp.h, linux/audit.h and linux/fs.h, which a small libc does not bring */
struct instruction { uint16_t code; uint8_t yes, no; uint32_t value; };
struct program { unsigned short n; const struct instruction *at; };
enum {
  NUMBER = 0, LANGUAGE = 4, FIRST = 16, SECOND = 24, THIRD = 32, /* places in what is looked at */
  X32 = 0x40000000, IO_URING = 425, AFTER_IO_URING = 428, VSOCK = 40, KEEP_SIZE = 1, PUNCH_HOLE = 2,
  RESERVE = 0x5828, RESERVE_64 = 0x582a, ZERO_RANGE = 0x5839, /* the lower halves of ioctls */
  LEASE = 1024, DELEGATION = 1040, ARMS_OWN = 0xf0000, /* calls of 32-bit arm alone, from there on */
  NETLINK = 16, AUDIT = 9,
  FILTER = 2,
  WHOLE = -1, SHORT = 0xffff, /* user ids: all bits, and as the oldest calls take them */
};
#define LOAD(place) {0x20, 0, 0, place}
#define MASK(bits) {0x54, 0, 0, bits}
#define IF(value, yes, no) {0x15, yes, no, value}
#define IF_FROM(value, yes, no) {0x35, yes, no, value}
#define ALLOW {0x06, 0, 0, 0x7fff0000}
#define FAIL(error) {0x06, 0, 0, 0x00050000 | (error)}

/* The calls of one machine language, by its numbers. A jump counts the instructions that it leaves out. */
/* clang-format off */
#define CALLS(language, fallocate, ioctl, socket, fcntl, fcntl64) \
  LOAD(LANGUAGE), IF(language, 0, 27), \
  LOAD(NUMBER), \
  IF_FROM(X32, 21, 0), IF(fallocate, 6, 0), IF(ioctl, 8, 0), IF(socket, 12, 0), IF(fcntl, 13, 0), IF(fcntl64, 12, 0), \
  IF_FROM(IO_URING, 0, 14), IF_FROM(AFTER_IO_URING, 13, 14), \
  LOAD(SECOND), MASK(KEEP_SIZE | PUNCH_HOLE), IF(KEEP_SIZE, 12, 10), \
  LOAD(SECOND), MASK(0xffff), IF(RESERVE, 9, 0), IF(RESERVE_64, 8, 0), IF(ZERO_RANGE, 7, 5), \
  LOAD(FIRST), IF(VSOCK, 6, 3), \
  LOAD(SECOND), IF(LEASE, 5, 0), IF(DELEGATION, 4, 0), \
  ALLOW, FAIL(ENOSYS), FAIL(EOPNOTSUPP), FAIL(EAFNOSUPPORT), FAIL(EINVAL)
#define USERS(language, setuid, setreuid, setresuid, setfsuid, bits) \
  LOAD(LANGUAGE), IF(language, 0, 15), \
  LOAD(NUMBER), IF(setuid, 9, 0), IF(setfsuid, 8, 0), IF(setreuid, 4, 0), IF(setresuid, 0, 10), \
  LOAD(THIRD), MASK(bits), IF(OWN_UID, 6, 0), \
  LOAD(SECOND), MASK(bits), IF(OWN_UID, 3, 0), \
  LOAD(FIRST), MASK(bits), IF(OWN_UID, 0, 1), \
  FAIL(EPERM)
#define LOGS(language, socket) \
  LOAD(LANGUAGE), IF(language, 0, 7), \
  LOAD(NUMBER), IF(socket, 0, 5), \
  LOAD(FIRST), IF(NETLINK, 0, 3), LOAD(THIRD), IF(AUDIT, 0, 1), FAIL(EPROTONOSUPPORT)
/* clang-format on */

static struct instruction filter[] = {
    LOAD(NUMBER), IF_FROM(ARMS_OWN, 2, 0), IF_FROM(ARMS_OWN, 0, 1), FAIL(ENOSYS), /* the second: see `know_calls` */
#if defined(__x86_64__)
    USERS(0xc000003e, 105, 113, 117, 122, WHOLE), USERS(0x40000003, 213, 203, 208, 215, WHOLE),
    USERS(0x40000003, 23, 70, 164, 138, SHORT), LOGS(0xc000003e, 41), LOGS(0x40000003, 359),
    CALLS(0xc000003e, 285, 16, 41, 72, 72), CALLS(0x40000003, 324, 54, 359, 55, 221),
#elif defined(__aarch64__)
    USERS(0xc00000b7, 146, 145, 147, 151, WHOLE), USERS(0x40000028, 213, 203, 208, 215, WHOLE),
    USERS(0x40000028, 23, 70, 164, 138, SHORT), LOGS(0xc00000b7, 198), LOGS(0x40000028, 281),
    CALLS(0xc00000b7, 47, 29, 198, 25, 25), CALLS(0x40000028, 352, 54, 281, 55, 221),
#endif
    ALLOW,
};

/* newest: the last call that the engine's filter knows of. Of two filters that refuse a call, the later one's error is seen.
 * New calls have one number in all languages. */
void know_calls(uint32_t newest) { filter[2].value = newest + 1; }

/* Needs no_new_privs. Where the kernel has no filters, there is none. */
void close_what_is_shared(void) {
  const struct program program = {sizeof filter / sizeof *filter, filter};
  prctl(PR_SET_SECCOMP, FILTER, &program, 0, 0);
}
