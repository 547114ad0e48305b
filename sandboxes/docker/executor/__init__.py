"""The executor, process 1 of every container, and everything here that speaks with it, whatever has started it."""
