#!/bin/bash
# Runs the tests and reads what they print. That is no proof: what is judged can print it too.
cd @WORKDIR@ || exit 1
@PREPARE@
kept=$(mktemp -d) && mkdir -p /logs/verifier || exit 1
bash /tests/commands.sh < /dev/null > "$kept/printed"
status=$?
head -c @LIMIT@ "$kept/printed" > "$kept/output"
tail -c 2000 "$kept/output"
echo
@PARSE@ < "$kept/output" > "$kept/results" || status=1
LC_ALL=C awk -v ended="$status" -v repeats=@REPEATS@ -f /tests/verdict.awk /tests/listed "$kept/results" \
    > /logs/verifier/ctrf.json && reward=1 || reward=0
echo "$reward" > /logs/verifier/reward.txt
