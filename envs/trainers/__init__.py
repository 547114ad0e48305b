"""Feed trainers that others made, or work inside of them. None is imported where it is not asked for."""
