"""Feed trainers that others made, in their own process. None is imported where it is not asked for."""
