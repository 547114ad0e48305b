"""Running: the task queue, groups, workers, and what is kept on disk to go on from."""
