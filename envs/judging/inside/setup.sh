#!/bin/sh
# Puts wrappers in place of the programs that may run judged code. $1: the working directory; $2: 1 where the agent is root.
# Without a Python outside of it the only wrapper is `judged`, and test.sh runs as it is. Each process that this script
# starts makes every judgement longer, so it does in the shell what it can.
# shellcheck disable=SC1091 # it is there when this runs
. /verifier/path.sh
workdir=$1

# The Python that watches judged code: one that has pytest where the tests name pytest, else the first.
found=
pytest=
grep -rqs pytest /tests && wanted=1 || wanted=
has_pytest='import sys; from importlib.util import find_spec; sys.exit(not find_spec("pytest"))'
for candidate in python3 /usr/local/bin/python3 /usr/bin/python3 /opt/miniconda3/envs/testbed/bin/python python; do
    path=$(command -v "$candidate") || continue
    case $path:$(readlink -f "$path") in "$workdir"/* | *:"$workdir"/*) continue ;; esac
    found=${found:-$path}
    [ "$wanted" ] || break
    "$path" -s -c "$has_pytest" 2> /dev/null && found=$path && pytest=1 && break
done

# A reward that no file of the task speaks of is none of test.sh's.
for one in reward.json reward.txt; do
    ! grep -rqsF "$one" /tests || echo "$one"
done > /logs/verifier/named

# Who looks at modes finds those that the agent left.
! grep -rqisE 'st_mode|S_IMODE|filemode|\<stat\>.*%a|-perm\>|\<ls -l' /tests || echo modes | tee /verifier/modes

# Which programs the task itself may tell to write there: `echo 1 | tee "$REWARD"`.
grep -rhIE '[$\\]|reward' /tests | sed -e :a -e '/\\$/N; s/\\\n/ /; ta' | grep -E '[$]|reward' |
    grep -oE '[A-Za-z0-9_.+-]+' | sort -u > /verifier/writers

# Links that root makes may lead to the tests where these speak of making links.
! grep -rqsE '\<ln |symlink' /tests || : > /verifier/links

chmod 700 /verifier
for hidden in test.sh tests.json test.patch suite; do
    [ ! -e "/tests/$hidden" ] || chmod go= "/tests/$hidden"
done
# Data that scripts alone speak of is none of what tests read, who run as nobody: what is judged may not look it up.
grep -rqsF --include=conftest.py pytest_collect_file /tests && collects=1 || collects=
for hidden in /tests/*; do
    case $hidden in *.py | *.sh | *.js | *.ts | *.rb | *.go | *.rs | *.java | *.[ch] | *.cpp | *.toml | *.cfg | *.ini | *.pl | *.lock | \
        *.bash | *.bats | *.t | *.pm | *.lua | *.php | *.mjs | *.cjs | *.jsx | *.tsx | *.cc | *.hpp) continue ;; esac
    # Documents that are tests, and what a conftest.py collects by its kind.
    case $hidden in *.md | *.rst | *.txt) ! grep -rqsF -e --doctest-glob /tests || continue ;; esac
    [ "$collects" ] && continue
    first=
    [ ! -f "$hidden" ] || IFS= read -r first < "$hidden"
    case $first in '#!'*) continue ;; esac
    [ -z "$(find "$hidden" -name '*.py' -o -name '*.p[lm]' -o -name '*.t' -o -name '*.ba[ts]*' -o -name '*.[jt]s' -o -name '*.rb' \
        -o -name '*.lua' 2> /dev/null)" ] || continue
    [ "$(find /tests -type f ! -name '*.sh' ! -path "$hidden" ! -path "$hidden/*" \
        -exec grep -lsF -e "${hidden##*/}" -e __file__ -e /tests {} +)" ] || chmod go= "$hidden"
done
# Tests that a runner is to run are read by root, who hands them on; what runs before may not read them, or later ones.
if grep -qsE 'pytest|unittest' /tests/*.sh && ! grep -qsE '"READABLE": *true' /tests/tests.json; then
    find /tests -type f \( -name 'test*.py' -o -name '*_test.py' -o -name '*_tests.py' \) -exec chmod go= {} +
fi
mkdir -p /verifier/bin

# Where the image lets anyone write to folders of its PATH, what is judged could put programs there that root runs;
# where to one that they are in, others in their place.
closed=
above=
close_folder() {
    case $1 in "$workdir" | "$workdir"/* | [!/]* | *[!A-Za-z0-9._+/-]*) return ;; esac
    [ -d "$1" ] || mkdir -p "$1"
    closed="$closed $1"
    parent=$1
    while parent=${parent%/*} && [ "$parent" ]; do above="$above $parent"; done
}
each_folder close_folder
# shellcheck disable=SC2086 # they are lists
find -H ${closed:-/bin} -maxdepth 0 -perm -002 -exec chmod o-w {} +
# shellcheck disable=SC2086 # they are lists
find -H ${above:-/usr} -maxdepth 0 -perm -002 -exec chmod +t {} +

# What the image lets root alone read of the working directory is none of the task's secrets: an agent that is root has
# seen it. What is judged runs as nobody.
[ "$2" = 0 ] || [ "$workdir" = / ] || find "$workdir" -xdev \( -type f ! -perm -004 -o -type d ! -perm -005 \) -exec chmod o+rX {} +

# What the tests may need of the tree, whatever the agent takes away.
[ "$workdir" = / ] || find "$workdir" -maxdepth 4 \( -type d -o -name '*.py' \) > /verifier/there

ln -s "$workdir" /verifier/workdir
printf '%s\n' "$workdir" > /verifier/place
if [ -e /lib64/ld-linux-x86-64.so.2 ] || [ -e /lib/ld-musl-x86_64.so.1 ]; then
    ln -s preload-amd64.so /verifier/preload.so
elif [ -e /lib/ld-linux-aarch64.so.1 ] || [ -e /lib/ld-musl-aarch64.so.1 ]; then
    ln -s preload-arm64.so /verifier/preload.so
fi
names="bash sh"
for name in dash ash ksh zsh awk gawk mawk nawk sed cp mv ln install sudo; do
    command -v "$name" > /dev/null && names="$names $name"
done
if [ "$found" ]; then
    echo "$found" > /verifier/python
    names="$names python python3 pytest py.test uv uvx coverage curl wget apt apt-get apk pip pip3 judged"
else
    cp /verifier/drop.sh /verifier/bin/judged
fi
[ -z "$found" ] || for name in poetry pipenv pdm hatch rye pixi conda mamba pytest-3 py.test-3 python2 node npm npx pnpm yarn deno bun go cargo ruby rake bundle perl php java mvn gradle dotnet make cmake ctest \
    lua luajit Rscript R julia tclsh expect guile ocaml runghc racket octave swift kotlin scala escript elixir mix dart zig \
    valgrind gdb; do
    command -v "$name" > /dev/null && names="$names $name"
done
[ -z "$found" ] || for number in 6 7 8 9 10 11 12 13 14 15; do
    command -v "python3.$number" > /dev/null && names="$names python3.$number"
done
for name in $names; do
    printf '#!/bin/sh\n. /verifier/wrapper.sh\n' > "/verifier/bin/$name"
    # `preload.so` leads to the wrapper of a program that is there; a function in the background has another's process id.
    [ ! -e /verifier/preload.so ] || ! command -v "$name" > /dev/null || continue
    # A function comes before whatever test.sh puts in front of PATH.
    echo "$name() { /verifier/bin/$name \"\$@\"; }"
    for folder in /usr/local/bin /usr/bin /bin /opt/miniconda3/envs/testbed/bin; do
        [ -x "$folder/$name" ] && echo "$folder/$name() { /verifier/bin/$name /verifier/call $folder/$name \"\$@\"; }"
    done
done > /verifier/functions.sh
cat /verifier/source.sh >> /verifier/functions.sh
: > /verifier/exported.sh # the functions that test.sh exports
chmod 755 /verifier/bin/*
# What test.sh puts into /tests later may be judged: it does not have the one time that the task's own files are given.
cat /proc/sys/kernel/random/uuid > /verifier/own # what wrappers say, which no variable of test.sh's can
: > /verifier/stamp
find /tests -exec touch -h -r /verifier/stamp {} + 2> /dev/null
: > /verifier/since
# What the agent left comes after it, as the file system tells time.
: > /verifier/ticked
until [ "$(find /verifier/ticked -cnewer /verifier/since)" ]; do : > /verifier/ticked; done
if [ "$pytest" ] && mkfifo /verifier/request /verifier/answer; then
    cd / && PYTHONHASHSEED=0 PYTHONPATH='' setsid "$found" -s -B /verifier/supervise.py --serve < /dev/null > /dev/null 2>&1 &
fi
