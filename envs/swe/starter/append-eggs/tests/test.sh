#!/bin/bash
# test_state.py reads files and starts nothing of the agent's.
pytest -p no:cacheprovider --rootdir /tests --tb=short -q /tests/test_state.py && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
