"""The page: runs, their groups and rollouts, in a browser, while they go on and afterwards."""
