"""The outbox: each packet leaves it once, or is kept aside."""

import sqlite3

import pytest
from packets import draw, fill_outbox

from envs.delivery.packing import Packet
from envs.running.group import count_states, fates
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.types import GroupState


async def test_a_group_whose_rows_went_into_two_packets_is_delivered_with_the_second(tmp_path):
    async with Journal(tmp_path) as journal:
        groups, outbox = [await draw(journal) for _ in range(2)], Outbox(journal)
        first, second = Packet("a", 0, {0: 3, 1: 1}, b"a"), Packet("b", 0, {1: 4}, b"b")
        await outbox.add(groups[0], [], [Packet("w", 0, {0: 3}, b"w")])
        await outbox.add(groups[1], [first, second], [])
        assert await outbox.waiting() == [], "what waited is in a packet now"
        await outbox.confirm(await outbox.next_ready())
        assert (await count_states(journal))["delivered"] == 1
        await outbox.confirm(await outbox.next_ready())
        assert (await count_states(journal))["delivered"] == 2


@pytest.mark.parametrize(("queued", "again", "aside"), [(3, 3, 0), (4, 0, 4), (6, 2, 4)])
async def test_what_the_api_lost_is_sent_again_unless_it_may_have_been_in_a_batch(tmp_path, queued, again, aside):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(queued))
        for _ in range(queued):
            await outbox.confirm(await outbox.next_ready())
        assert await outbox.lost_by_api(batch=4) == (again, aside)
        assert await count_states(journal) == {
            state: count for state, count in (("outbox", again), ("uncertain", aside)) if count
        }
        assert len(list((tmp_path / "aside").glob("uncertain-*"))) == aside
    kept = [tmp_path / fate.evidence for fate in fates(tmp_path, [GroupState.UNCERTAIN])]
    assert len(kept) == aside
    assert all(path.is_file() for path in kept), "the evidence is where the journal says"


async def test_what_the_api_has_handed_on_is_not_sent_again(tmp_path):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(3))
        for _ in range(3):
            await outbox.confirm(await outbox.next_ready())
        await outbox.handed_on(left=1)
        assert await outbox.lost_by_api(batch=4) == (1, 0)


async def test_a_damaged_packet_costs_its_own_group(tmp_path):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE packets SET body = ? WHERE id = 1", (b"y" * 500,))
    db.close()
    async with Journal(tmp_path) as journal:
        assert (await Outbox(journal).next_ready()).rows == {1: 4}
        assert await count_states(journal) == {"corrupt": 1, "outbox": 2}
