#!/bin/bash
# Runs a terminal-bench task's own run-tests.sh, and rewards a pass as terminal-bench reads it.
set -- @PLACES@ # the tests of the image: their name in /tests, and their place, a folder if "/" is at its end
while [ $# -gt 0 ]; do
    # shellcheck disable=SC2086 # a name may be a pattern
    if [ -d "/tests/$1" ]; then mkdir -p "$2" && cp -rf "/tests/$1/." "$2"; else cp -f /tests/$1 "$2"; fi
    shift 2
done
export TEST_DIR=/tests T_BENCH_TEST_DIR=/tests
@RUN@
# shellcheck disable=SC2181 # as terminal-bench's own
[ $? -eq 0 ] && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
