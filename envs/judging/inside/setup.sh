#!/bin/sh
# Puts stand-ins in place of the programs that may run judged code. $1: the working directory.
# Without a Python outside of it there is but `judged`: test.sh runs as it is. Each process that this starts is time of every
# judgement, so it does with the shell what it can.
found=
pytest=
grep -rqs pytest /tests && wanted=1 || wanted=
has_pytest='import sys; from importlib.util import find_spec; sys.exit(not find_spec("pytest"))'
for candidate in python3 /usr/local/bin/python3 /usr/bin/python3 /opt/miniconda3/envs/testbed/bin/python python; do
    path=$(command -v "$candidate") || continue
    case $path:$(readlink -f "$path") in "$1"/* | *:"$1"/*) continue ;; esac
    found=${found:-$path}
    [ "$wanted" ] || break
    "$path" -s -c "$has_pytest" 2> /dev/null && found=$path && pytest=1 && break
done
chmod 700 /judge
for hidden in test.sh tests.json test.patch suite; do
    [ ! -e "/tests/$hidden" ] || chmod go= "/tests/$hidden"
done
mkdir -p /judge/bin
# Where the image lets anyone write to folders of its PATH, what is judged could put programs there that root runs;
# where to one that they are in, others in their place.
closed=
above=
rest=$PATH:
while [ -n "$rest" ]; do
    folder=${rest%%:*}
    rest=${rest#*:}
    case $folder in "$1" | "$1"/* | [!/]* | *[!A-Za-z0-9._+/-]*) continue ;; esac
    [ -d "$folder" ] || mkdir -p "$folder"
    closed="$closed $folder"
    while folder=${folder%/*} && [ -n "$folder" ]; do above="$above $folder"; done
done
# shellcheck disable=SC2086 - they are lists
find -H ${closed:-/bin} -maxdepth 0 -perm -002 -exec chmod o-w {} +
find -H ${above:-/usr} -maxdepth 0 -perm -002 -exec chmod +t {} +
ln -s "$1" /judge/workdir
if [ -e /lib64/ld-linux-x86-64.so.2 ] || [ -e /lib/ld-musl-x86_64.so.1 ]; then
    ln -s preload-amd64.so /judge/preload.so
elif [ -e /lib/ld-linux-aarch64.so.1 ] || [ -e /lib/ld-musl-aarch64.so.1 ]; then
    ln -s preload-arm64.so /judge/preload.so
fi
if [ -z "$found" ]; then
    cp /judge/drop.sh /judge/bin/judged
    chmod 755 /judge/bin/judged
    mv /judge/source.sh /judge/functions.sh
    : > /judge/since
    exit 0
fi
echo "$found" > /judge/python
names="python python3 pytest py.test uv uvx bash sh judged"
for name in python2 node npm npx pnpm yarn deno bun go cargo ruby rake bundle perl php java mvn gradle dotnet make cmake ctest \
    lua luajit Rscript R julia tclsh expect guile ocaml runghc racket octave swift kotlin scala escript elixir mix dart zig \
    valgrind gdb; do
    command -v "$name" > /dev/null && names="$names $name"
done
for number in 6 7 8 9 10 11 12 13 14 15; do
    command -v "python3.$number" > /dev/null && names="$names python3.$number"
done
for name in $names; do
    printf '#!/bin/sh\n. /judge/stand-in.sh\n' > "/judge/bin/$name"
    # A function comes before whatever test.sh puts in front of PATH.
    echo "$name() { /judge/bin/$name \"\$@\"; }"
    for folder in /usr/local/bin /usr/bin /bin /opt/miniconda3/envs/testbed/bin; do
        [ -x "$folder/$name" ] && echo "$folder/$name() { /judge/bin/$name /judge/call $folder/$name \"\$@\"; }"
    done
done > /judge/functions.sh
cat /judge/source.sh >> /judge/functions.sh
chmod 755 /judge/bin/*
: > /judge/since
if [ "$pytest" ] && mkfifo /judge/request /judge/answer; then
    cd / && PYTHONHASHSEED=0 PYTHONPATH= setsid "$found" -s -B /judge/supervise.py --serve < /dev/null > /dev/null 2>&1 &
fi
