#!/bin/sh
# Builds the static executors that are shipped beside this script, on an amd64 Debian 12 with the packages
# musl-tools, gcc-aarch64-linux-gnu and curl. musl for arm64 comes from Debian's package of it. The same
# sources and packages give the same bytes. `build.sh DIRECTORY` writes them there, for a comparison.
# shellcheck disable=SC2086 # the flags are a list
set -eu
target=$(realpath "${1:-$(dirname "$0")}")
cd "$(dirname "$0")"
flags="-std=gnu11 -Os -Wall -Wextra -Werror -static -s -fno-asynchronous-unwind-tables -ffunction-sections
    -Wl,--gc-sections -Wl,-z,norelro -Wl,--build-id=none"

musl-gcc $flags -o "$target/executor-amd64" ./*.c

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(dpkg-query -W -f '${Version}' musl-dev)
# From where this machine has its own, which lies beside it.
address=$(apt-get download --print-uris "musl-dev=$version" | cut -d "'" -f 2)
[ -n "$address" ] || {
    echo "apt does not know where musl-dev $version is: run apt-get update" >&2
    exit 1
}
curl -fsS -o "$work/musl.deb" "${address%_amd64.deb}_arm64.deb"
dpkg-deb -x "$work/musl.deb" "$work"
lib=$work/usr/lib/aarch64-linux-musl
# -mno-outline-atomics: the helpers for it need glibc.
aarch64-linux-gnu-gcc $flags -mno-outline-atomics -nostdinc -nostdlib -isystem "$work/usr/include/aarch64-linux-musl" \
    -isystem "$(aarch64-linux-gnu-gcc -print-file-name=include)" -o "$target/executor-arm64" \
    "$lib/crt1.o" "$lib/crti.o" ./*.c -Wl,--start-group "$lib/libc.a" -lgcc -Wl,--end-group "$lib/crtn.o"
