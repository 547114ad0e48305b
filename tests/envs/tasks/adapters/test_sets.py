"""The published sets of tasks."""

from envs.tasks.adapters import ADAPTERS
from envs.tasks.adapters.sets import SETS


def test_every_set_is_pinned_and_has_a_reader():
    assert all(len(found.revision) == 40 and found.format in ADAPTERS for found in SETS.values())
