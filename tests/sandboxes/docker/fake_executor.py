"""The executor's end of a stream, without a container: it greets, and answers each frame as the test says."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

from sandboxes.docker.executor.connection import PROTOCOL, Connection

HEADER = struct.Struct("<IIc")


def frame(number: int, kind: bytes, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), number, kind) + payload


def end(number: int, exit_code: int = 0, flags: int = 0, dropped: tuple[int, int, int] = (0, 0, 0)) -> bytes:
    return frame(number, b"X", struct.pack("<IB3Q", exit_code, flags, *dropped))


HELLO = frame(0, b"H", struct.pack("<I", PROTOCOL))

Answer = Callable[[int, bytes, bytes], bytes | None]


class FakeExecutor:
    """A stream. `frames` holds what has come: number, kind, payload."""

    def __init__(self, answer: Answer = lambda *frame: None, *, hello: bytes = HELLO) -> None:
        self.frames: list[tuple[int, bytes, bytes]] = []
        self._answer = answer
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self.say(hello)

    def say(self, data: bytes) -> None:
        self._said.put_nowait(data)

    async def read(self) -> bytes:
        return await self._said.get()

    async def forward_to(self, take: Callable[[bytes], None]) -> None:
        while data := await self.read():
            take(data)

    async def write(self, data: bytes) -> None:
        if len(data) == 16 or data[8:9] == b"V":  # a token, alone or in its frame: we have been attached again
            self.say(data[-16:] + HELLO)
            return
        _, number, kind = HEADER.unpack_from(data)
        self.frames.append((number, kind, data[HEADER.size :]))
        if said := self._answer(*self.frames[-1]):
            self.say(said)

    async def close(self) -> None:
        self.say(b"")


async def connected(*streams: FakeExecutor, runs: bool | Callable[[], Awaitable[bool]] = False) -> Connection:
    """A connection to the first of these; when that ends, the container is said to run or not, and the next is had.

    runs: the answer, or the function that gives it."""
    left = list(streams)

    async def attach() -> FakeExecutor:
        return left.pop(0)

    async def still_runs() -> bool:
        return runs if isinstance(runs, bool) else await runs()

    connection = Connection("box", attach, still_runs)
    await connection.attach()
    await connection.greet(5)
    return connection
