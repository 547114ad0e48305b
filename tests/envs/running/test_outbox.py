"""The outbox: each packet leaves it once, or is kept aside."""

import sqlite3
from contextlib import closing

import pytest
from packets import draw, fill_outbox

from envs.delivery.notes import Attempt, KnownAPI
from envs.delivery.packing import Packet
from envs.running.database import RunDirectoryError
from envs.running.group import count_states, group_outcomes
from envs.running.journal import FILE_NAME, Journal
from envs.running.outbox import Outbox
from envs.types import GroupState

API = KnownAPI(env_id=0, registrations=1, foreign=0, batch=4, step=1, alone=True)
ATTEMPT = Attempt(env_id=0, step=0, queued=0, foreign=0, alone=True)


async def queue_next(outbox):
    """Send a packet, as far as the outbox knows."""
    packet = await outbox.next_packet()
    await outbox.begin(packet, ATTEMPT)
    await outbox.confirm(packet)


async def test_a_group_whose_rows_went_into_two_packets_is_delivered_with_the_second(tmp_path):
    async with Journal(tmp_path) as journal:
        groups, outbox = [await draw(journal) for _ in range(2)], Outbox(journal)
        first, second = Packet("a", 0, {0: 3, 1: 1}, b"a"), Packet("b", 0, {1: 4}, b"b")
        await outbox.add(groups[0], [], [Packet("w", 0, {0: 3}, b"w")])
        await outbox.add(groups[1], [first, second], [])
        assert await outbox.waiting() == [], "what waited is in a packet now"
        await outbox.confirm(await outbox.next_packet())
        assert (await count_states(journal))["delivered"] == 1
        await outbox.confirm(await outbox.next_packet())
        assert (await count_states(journal))["delivered"] == 2


async def test_a_row_that_has_waited_for_too_long_is_kept_aside(tmp_path):
    async with Journal(tmp_path) as journal:
        groups, outbox = [await draw(journal) for _ in range(2)], Outbox(journal)
        row = Packet("w", 0, {0: 1}, b"w")
        await outbox.add(groups[0], [Packet("a", 0, {0: 4}, b"a")], [row])
        await outbox.add(groups[1], [], [Packet("v", 20, {1: 1}, b"v")], [row])
        assert [packet.name for packet in await outbox.waiting()] == ["v"]
        await outbox.confirm(await outbox.next_packet())
    (outcome,) = group_outcomes(tmp_path, [GroupState.STALE])
    assert outcome.number == 0, "also when its other rows are delivered"
    assert (tmp_path / outcome.evidence).read_bytes() == b"w"


@pytest.mark.parametrize(("queued", "again", "aside"), [(3, 3, 0), (4, 0, 4), (6, 2, 4)])
async def test_what_the_api_lost_is_sent_again_unless_it_may_have_been_in_a_batch(tmp_path, queued, again, aside):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(queued))
        for _ in range(queued):
            await queue_next(outbox)
        assert await outbox.note_lost_by_api(batch=4, env_id=0, stored=None, doubtful=()) == (again, aside)
        assert await count_states(journal) == {
            state: count for state, count in (("outbox", again), ("uncertain", aside)) if count
        }
        assert len(list((tmp_path / "aside").glob("uncertain-*"))) == aside
    kept = [tmp_path / outcome.evidence for outcome in group_outcomes(tmp_path, [GroupState.UNCERTAIN])]
    assert len(kept) == aside
    assert all(path.is_file() for path in kept), "the evidence is where the journal says"


async def test_a_packet_kept_aside_stays_when_a_repair_makes_the_ids_begin_again(tmp_path):
    for _ in range(2):
        async with Journal(tmp_path) as journal:
            outbox, group = Outbox(journal), await draw(journal)
            await outbox.add(group, [Packet("a", 0, {group.number: 4}, b"of group %d" % group.number)], [])
            await outbox.put_aside(await outbox.next_packet(), GroupState.STALE, "it is old")
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
            db.execute("DELETE FROM sqlite_sequence")  # a repair takes over no such table
    kept = [(tmp_path / outcome.evidence).read_bytes() for outcome in group_outcomes(tmp_path, [GroupState.STALE])]
    assert kept == [b"of group 0", b"of group 1"]


async def test_what_the_api_has_handed_on_is_not_sent_again(tmp_path):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(3))
        for _ in range(3):
            await queue_next(outbox)
        await outbox.note_handed_on({0: 1}, formed=1, api=API)
        assert await outbox.note_lost_by_api(batch=4, env_id=0, stored=None, doubtful=()) == (1, 0)
        assert await outbox.known_api() == API


async def test_what_left_the_queue_in_one_of_several_batches_is_kept_until_the_next_are_formed(tmp_path):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(6))
        for _ in range(6):
            await queue_next(outbox)
        await outbox.note_handed_on({0: 2}, formed=2, api=API)
        assert await outbox.note_lost_by_api(batch=4, env_id=0, stored=None, doubtful=()) == (2, 4), (
            "the API still holds one batch of the two"
        )
    assert {outcome.number for outcome in group_outcomes(tmp_path, [GroupState.UNCERTAIN])} == {0, 1, 2, 3}


async def test_when_the_next_batches_are_formed_the_trainer_has_those_before(tmp_path):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(6))
        for _ in range(6):
            await queue_next(outbox)
        await outbox.note_handed_on({0: 2}, formed=2, api=API)
        await outbox.note_handed_on({0: 1}, formed=1, api=API)
        assert await outbox.note_lost_by_api(batch=4, env_id=0, stored=None, doubtful=()) == (1, 0)


async def test_a_packet_that_was_about_to_be_sent_is_in_doubt_at_the_next_start(tmp_path):
    attempt = Attempt(env_id=3, step=7, queued=2, foreign=1, alone=True)
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(2))
        await outbox.begin(await outbox.next_packet(), attempt)
        assert (await outbox.next_packet()).id == 2, "it is not sent again unasked"
    async with Journal(tmp_path) as journal:
        outbox = Outbox(journal)
        ((packet, before),) = await outbox.packets_in_doubt()
        assert (packet.id, before) == (1, attempt)
        assert await outbox.environments() == [3]
        await outbox.take_back(packet)
        assert (await outbox.next_packet()).id == 1
        assert (await outbox.next_packet(after=1)).id == 2, "others come before one that failed"
        assert await count_states(journal) == {"outbox": 2}


@pytest.mark.parametrize("confirmed", [True, False])
async def test_what_a_new_api_surely_has_is_confirmed_and_in_its_queue(tmp_path, confirmed):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(2))
        await queue_next(outbox)
        packet = await outbox.next_packet()
        await outbox.begin(packet, ATTEMPT)
        if confirmed:
            await outbox.confirm(packet)
        assert await outbox.note_lost_by_api(batch=4, env_id=7, stored=packet.name, doubtful=()) == (1, 0)
        assert await count_states(journal) == {"outbox": 1, "delivered": 1}
        assert await outbox.environments() == [7]
        assert (await outbox.next_packet()).id == 1


@pytest.mark.parametrize("confirmed", [True, False])
async def test_what_a_new_api_may_have_is_not_sent_again(tmp_path, confirmed):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(2))
        await queue_next(outbox)
        packet = await outbox.next_packet()
        await outbox.begin(packet, ATTEMPT)
        if confirmed:
            await outbox.confirm(packet)
        assert await outbox.note_lost_by_api(batch=4, env_id=0, stored=None, doubtful=[packet.name]) == (1, 1)
        assert await count_states(journal) == {"outbox": 1, "uncertain": 1}
        assert (await outbox.next_packet()).id == 1


async def test_a_packet_whose_row_cannot_be_read_is_named(tmp_path):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
        await journal.write(lambda db: db.execute("UPDATE packets SET rows = 'null' WHERE id = 2"))
        with pytest.raises(RunDirectoryError, match=r"state.db holds what can't be read .*packet 2 are 'null'"):
            await queue_next(Outbox(journal))
            await queue_next(Outbox(journal))


async def test_a_damaged_packet_costs_its_own_group(tmp_path):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE packets SET body = ? WHERE id = 1", (b"y" * 500,))
    db.close()
    async with Journal(tmp_path) as journal:
        assert (await Outbox(journal).next_packet()).rows == {1: 4}
        assert await count_states(journal) == {"corrupt": 1, "outbox": 2}
