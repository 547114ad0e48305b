"""Conversations in token ids."""
