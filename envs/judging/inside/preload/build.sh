#!/bin/sh
# Builds preload-amd64.so and preload-arm64.so beside the verifier's other files, on an amd64 Debian 12 with the packages gcc,
# gcc-aarch64-linux-gnu and libc6-dev-arm64-cross. They are linked with nothing, so that they fit every C library.
set -eu
target=$(realpath "${1:-$(dirname "$0")/..}")
cd "$(dirname "$0")"
flags="-std=gnu11 -Os -Wall -Wextra -Werror -fPIC -shared -nostdlib -s -fno-builtin -fno-stack-protector
    -U_FORTIFY_SOURCE -fno-asynchronous-unwind-tables -Wl,--build-id=none,--hash-style=both,-z,noseparate-code,-z,norelro"
# shellcheck disable=SC2086 # they are words
gcc $flags -o "$target/preload-amd64.so" ./*.c
# shellcheck disable=SC2086 # they are words
aarch64-linux-gnu-gcc $flags -o "$target/preload-arm64.so" ./*.c
