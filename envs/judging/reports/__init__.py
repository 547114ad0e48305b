"""The tests as they were seen to run: messages of the runners, held against the key of the decoys."""
