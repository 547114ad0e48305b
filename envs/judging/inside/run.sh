#!/bin/sh
# Runs test.sh with the wrappers in the way. $1: the working directory.
# shellcheck disable=SC1091 # it is there when this runs
. /verifier/path.sh
workdir=$1
inside=
outside=
# Programs below the working directory are found last, so that none takes the place of another that test.sh means.
# shellcheck disable=SC2317,SC2329 # each_folder calls it
sort_folder() {
    case $1 in "$workdir" | "$workdir"/* | [!/]* | "") inside=$inside:${1:-.} ;; *) outside=$outside:$1 ;; esac
}
each_folder sort_folder
# The last is where pip puts the programs of what nobody installs.
export PATH="/verifier/bin$outside$inside:/tmp/.local/bin" BASH_ENV=/verifier/functions.sh
case $HOME in "$workdir" | "$workdir"/* | [!/]* | "") export HOME=/root ;; esac
# Not by variables, which test.sh may take of a file of the agent's (`export $(cat .env)`).
echo "${JUDGED_UID:-65534}" > /verifier/uid
printf %s "$JUDGED_KEPT" > /verifier/kept
printf %s "$JUDGED_GRADED" > /verifier/graded
unset JUDGED_UID JUDGED_KEPT JUDGED_GRADED
[ ! -e /verifier/preload.so ] || export LD_PRELOAD=/verifier/preload.so
env > /verifier/environment
# What test.sh writes comes after what the agent left.
: > /verifier/applied
: > /verifier/began
until [ "$(find /verifier/began -cnewer /verifier/applied)" ]; do : > /verifier/began; done
/bin/bash /tests/test.sh
status=$?
unset LD_PRELOAD
# Judged code may have put programs into folders of the image's PATH.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /sys/fs/cgroup && cat memory.peak memory/memory.max_usage_in_bytes > /logs/verifier/memory 2> /dev/null
exit $status
