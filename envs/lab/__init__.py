"""The lab: the demo, learning runs on one machine, and their trainer."""
