"""Running: the task queue, groups, workers, and the files from which a run continues."""
