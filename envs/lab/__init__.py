"""The lab: the demo, learning runs on one machine, and the trainer that they use."""
