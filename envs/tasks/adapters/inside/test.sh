#!/bin/bash
# The tests listed in tests.json decide under atropos-agent's verifier; under another one, the exit status.
cd @WORKDIR@ || exit 1
@PREPARE@
export PYTHONPATH=@PATH@ LANG=C.UTF-8@ENVIRONMENT@
@COMMAND@
# shellcheck disable=SC2181 # the command may be of several lines
[ $? -eq 0 ] && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
