#!/bin/bash
# Runs a terminal-bench task's own run-tests.sh. Rewarded are an exit status of 0 and, where atropos-agent's
# verifier has watched pytest and reports on it, that every test passed: skipped ones didn't.
export TEST_DIR=/tests T_BENCH_TEST_DIR=/tests
bash /tests/run-tests.sh
status=$?
report=/logs/verifier/watched.json
if [ -e $report ]; then
    [ -s $report ] && ! grep -Eq '": "(failed|skipped|missing|other)"|"problem": "' $report || status=1
fi
[ $status -eq 0 ] && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
