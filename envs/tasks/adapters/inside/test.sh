#!/bin/bash
# The tests that tests.json lists decide under atropos-agent's verifier, whatever the others do; under another verifier
# the exit status does.
cd @WORKDIR@ || exit 1
@PREPARE@
export PYTHONPATH=@PATH@ LANG=C.UTF-8@ENVIRONMENT@
@COMMAND@
status=$?
[ ! -e /verifier/port ] || status=0
[ $status -eq 0 ] && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
