"""A process whose descriptors are used up."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def used_up() -> Iterator[None]:
    """In this block no file can be opened, and no connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
