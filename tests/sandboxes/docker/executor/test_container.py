"""What any started container is, whoever has started it."""

import contextlib

import pytest

from sandboxes.base import Limits, SandboxDied, SandboxSpec
from sandboxes.docker.executor.container import Container, Kind


class Channel:
    def __init__(self, error):
        self.error = error

    async def read(self, path, max_bytes, identity):
        raise self.error


def container(error=None, stack=None):
    abstract = dict.fromkeys(Container.__abstractmethods__, None)
    plain = type("Plain", (Container,), abstract)
    return plain(Kind("image", Limits(), False), "box", Channel(error), {}, stack or contextlib.AsyncExitStack())


@pytest.mark.parametrize(
    ("error", "well"), [(IsADirectoryError(), True), (SandboxDied("x"), False), (TimeoutError(), False)]
)
async def test_one_answers_whose_executor_does(error, well):
    assert await container(error).is_responsive() is well


async def test_what_it_is_made_of_goes_once():
    gone = []
    stack = contextlib.AsyncExitStack()
    stack.callback(gone.append, 1)
    one = container(stack=stack)
    await one.discard()
    await one.discard()
    assert gone == [1]


async def test_what_cannot_be_seen_is_not_measured():
    with pytest.raises(FileNotFoundError, match="box"):
        await container().disk_usage()


def test_hosts_that_are_none_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="is no host"):
        Kind.of(SandboxSpec("image", limits=Limits(allowed_hosts=("//",))))
