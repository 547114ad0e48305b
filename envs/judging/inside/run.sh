#!/bin/sh
# Runs test.sh with the stand-ins in the way. $1: the working directory.
# Programs below that are found last, so that none of them takes the place of another that test.sh means.
inside=
outside=
rest=$PATH:
while [ -n "$rest" ]; do
    folder=${rest%%:*}
    rest=${rest#*:}
    case $folder in "$1" | "$1"/* | [!/]* | "") inside=$inside:${folder:-.} ;; *) outside=$outside:$folder ;; esac
done
export JUDGE_WORKDIR="$1" PATH="/judge/bin$outside$inside" BASH_ENV=/judge/functions.sh
[ ! -e /judge/preload.so ] || export LD_PRELOAD=/judge/preload.so
/bin/bash /tests/test.sh
status=$?
unset LD_PRELOAD
# Judged code may have put programs into folders of the image's PATH.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /sys/fs/cgroup && cat memory.peak memory/memory.max_usage_in_bytes > /logs/verifier/memory 2> /dev/null
exit $status
