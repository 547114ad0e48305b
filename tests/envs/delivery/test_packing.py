"""Every row reaches a packet of the registered size, or waits."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from row_samples import rollout, score, sent

from envs.delivery.packing import RowPacker
from envs.delivery.row_check import check_group


def replace_step(scored, step):
    """The group, complete at another step of the trainer."""
    origin = replace(scored.origin, step=step)
    return replace(scored, origin=origin, rows=tuple(replace(row, origin=origin) for row in scored.rows))


def test_a_group_of_single_rows_passes_as_it_is():
    scored = score([rollout(1.0, name="a"), rollout(0.0, name="b")])
    group = scored.to_wire()
    assert group["scores"] == [1.0, 0.0]
    assert group["advantages"] == [[0.0, 1.0, 1.0], [0.0, -1.0, -1.0]]
    assert check_group(group) == []
    (packet,), waiting = RowPacker(2).add(scored, step=0)
    arrived = sent(packet)
    assert arrived["generation_params"].pop("delivery_id") == packet.name
    assert arrived == group
    assert not waiting


@given(st.lists(st.lists(st.integers(1, 5), min_size=4, max_size=4), max_size=8))
def test_every_row_leaves_in_a_group_of_the_registered_size_or_waits(sizes):
    packer = RowPacker(4)
    groups, rows, waiting = [], 0, []
    for number, segments in enumerate(sizes):
        scored = score([rollout(float(i % 2), n, f"g{number}r{i}") for i, n in enumerate(segments)], number)
        rows += len(scored.rows)
        packets, waiting = packer.add(scored, step=0)
        assert all(sum(packet.rows.values()) == 4 for packet in packets)
        groups += map(sent, packets)
    assert all(len(group["tokens"]) == 4 for group in groups)
    assert all(check_group(group) == [] for group in groups)
    assert sum(len(group["tokens"]) for group in groups) + len(waiting) == rows
    assert len(waiting) < 4


def test_rows_that_wait_for_others_go_on_waiting_after_a_restart():
    first = score([rollout(float(i % 2), 1 + i // 4, f"a{i}") for i in range(5)], 7)  # six rows
    packets, waiting = RowPacker(4).add(first, step=0)
    assert [dict(p.rows) for p in packets] == [{7: 4}]
    assert [dict(p.rows) for p in waiting] == [{7: 1}, {7: 1}]
    second = score([rollout(1.0, 2, "b")], 8)
    packets, waiting = RowPacker(4, waiting).add(second, step=0)
    assert [dict(p.rows) for p in packets] == [{7: 2, 8: 2}]
    assert not waiting
    arrived = sent(packets[0])
    assert arrived["generation_params"]["rollout_ids"] == ["a4", "a4", "b", "b"]
    assert arrived["generation_params"]["group_id"] is None, "they are of two groups"
    assert arrived["generation_params"]["temperature"] == 1.0
    assert check_group(arrived) == []


def test_a_row_that_waits_is_as_old_as_its_group_and_is_taken_out_when_it_is_too_old():
    def at(step, segments, number):
        scored = score([rollout(float(i % 2), n, f"g{number}r{i}") for i, n in enumerate(segments)], number)
        return replace_step(scored, step)

    packer = RowPacker(4)
    _, waiting = packer.add(at(3, [1, 1, 1, 2], 0), step=3)
    assert [dict(packet.rows) for packet in waiting] == [{0: 1}]
    for step in range(4, 20):  # groups that need no other rows
        assert packer.take_stale(step, 16) == []
        (packet,), waiting = packer.add(at(step, [1, 1, 1, 1], step), step=step)
        assert packet.step == step
        assert [one.step for one in waiting] == [3]
    (packet,), waiting = RowPacker(4, waiting).add(at(19, [1, 1, 1], 20), step=19)
    assert (packet.step, packet.rows, waiting) == (3, {0: 1, 20: 3}, []), "it is sent before the trainer is too far"
    (stale,) = packer.take_stale(20, 16)
    assert (stale.step, stale.rows) == (3, {0: 1})
    packets, waiting = packer.add(at(20, [1, 1, 1], 21), step=20)
    assert packets == []
    assert [dict(packet.rows) for packet in waiting] == [{21: 1}] * 3
