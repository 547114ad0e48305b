"""An event loop whose clock jumps to the next timer, so that an hour takes a second."""

import asyncio


class SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        super().__init__()
        self._now = 0.0
        select = self._selector.select

        def skip(timeout=None):
            self._now += timeout or 0.0
            return select(0)

        self._selector.select = skip

    def time(self):
        return self._now
