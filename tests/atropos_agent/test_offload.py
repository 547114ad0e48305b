"""Work on long replies is done in threads."""

import threading

from atropos_agent.offload import LONG, offload


async def test_a_long_reply_is_worked_on_in_a_thread_and_a_short_one_is_not():
    here = threading.get_ident()
    assert await offload(threading.get_ident, LONG - 1) == here
    assert await offload(threading.get_ident, LONG) != here
