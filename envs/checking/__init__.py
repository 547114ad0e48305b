"""Checks of tasks before and after their use: references, cheats, flakes, saved rollouts judged again."""
