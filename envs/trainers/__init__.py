"""Environments inside of other trainers, a module each. None is imported where it is not asked for."""
