"""Work on long replies is done in threads."""

import threading

from atropos_agent.aside import LONG, aside


async def test_a_long_reply_is_worked_on_in_a_thread_and_a_short_one_is_not():
    here = threading.get_ident()
    assert await aside(threading.get_ident, LONG - 1) == here
    assert await aside(threading.get_ident, LONG) != here
