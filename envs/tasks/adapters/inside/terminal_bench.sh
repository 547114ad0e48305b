#!/bin/bash
# Runs a terminal-bench task's own run-tests.sh, and rewards an exit status of 0.
export TEST_DIR=/tests T_BENCH_TEST_DIR=/tests
bash /tests/run-tests.sh
# shellcheck disable=SC2181 # as terminal-bench's own
[ $? -eq 0 ] && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
