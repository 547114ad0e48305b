#!/bin/bash
# The tests listed in tests.json decide under atropos-agent's verifier; under another one, pytest's exit status.
cd /app || exit 1
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
python3 -m pytest -p no:cacheprovider --noconftest -c /dev/null --rootdir /tests --tb=short -q /tests/test_hidden.py && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
