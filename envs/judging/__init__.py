"""Judging: the agent's changes in a fresh sandbox, hidden tests, a verdict."""
