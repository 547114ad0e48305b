"""Which rows a trainer has trained on, whatever it gets ahead, drops or loses."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, deque
from typing import Any

import pytest

from envs.trainers.ledger import HandedRow, Ledger


def test_a_group_is_done_when_each_of_its_rows_was_trained_on() -> None:
    ledger = Ledger()
    assert ledger.hand("a", 3) == [0, 1, 2]
    for row in range(3):
        ledger.get(HandedRow("a", row))
    assert ledger.waiting == 0
    ledger.pack(HandedRow("a", 0))
    ledger.pack(HandedRow("a", 1))
    assert not ledger.trained, "it is packed ahead of its step"
    assert ledger.step(1) == [HandedRow("a", 0), HandedRow("a", 1)]
    assert ledger.state() == {"trained": [], "partly": {"a": [0, 1]}}
    again = Ledger(**ledger.state())
    assert again.hand("a", 3) == [2], "what is left of it is given after a restart"


def test_a_state_names_many_groups_in_little_room() -> None:
    order = {f"0123456789ab-{number}" for number in range(100_000) if number % 3}
    others = {"mine", "step-3/0/8/task-7", "step-3/0/8/task-07", "far-1", "far-99999999999", "-5", "٣-٣", ""}
    others.add("a-" + "9" * 5000)
    text = json.dumps(Ledger(order | others).state())
    assert len(text) < 40_000
    assert Ledger(**json.loads(text)).trained == order | others
    assert Ledger(["a-1", "a-2"]).trained == {"a-1", "a-2"}, "as earlier versions wrote them"


def test_a_row_that_the_trainer_dropped_is_done_too() -> None:
    ledger = Ledger()
    ledger.hand("old", 1)
    ledger.hand("new", 2)
    for key in (("old", 0), ("new", 0), ("new", 1)):
        ledger.get(HandedRow(*key))
    ledger.pack(HandedRow("new", 0))
    assert ledger.step(1) == [HandedRow("new", 0)]
    assert ledger.trained == {"old"}, "it was got before a row that is in a batch, and is in none"


def test_a_step_on_batches_that_were_never_packed_is_a_mistake() -> None:
    ledger = Ledger()
    ledger.hand("a", 1)
    ledger.get(HandedRow("a", 0))
    with pytest.raises(LookupError, match="on 1 batches, and 0 were seen"):
        ledger.step(1)


class Trainer:
    """Does what TRL's does: packs one batch ahead, drops rows, takes one row beyond a batch, saves now and then. Its
    weights are the rows that they were trained on."""

    def __init__(self, rng: random.Random, groups: dict[str, int], saved: str | None) -> None:
        state: dict[str, Any] = json.loads(saved) if saved else {"weights": [], "ledger": {}}
        self.rng, self.weights, self.ledger = (
            rng,
            [HandedRow(*row) for row in state["weights"]],
            Ledger(**state["ledger"]),
        )
        self.queue = deque(
            HandedRow(name, row)
            for name, rows in groups.items()
            if name not in self.ledger.trained
            for row in self.ledger.hand(name, rows)
        )
        self.beyond: list[HandedRow] = []
        self.batches: deque[list[HandedRow]] = deque()
        self.dropped: set[HandedRow] = set()

    def pack(self, size: int, *, beyond: bool) -> bool:
        """Pack a batch of so many rows. beyond: it ends when a row is got that does not fit, which begins the next."""
        batch, self.beyond = self.beyond, []
        while len(batch) < size or (beyond and not self.beyond):
            if not self.queue:
                return False
            row = self.queue.popleft()
            self.ledger.get(row)
            if self.rng.random() < 0.1:
                self.dropped.add(row)
            elif len(batch) < size:
                batch.append(row)
            else:
                self.beyond = [row]
        self.rng.shuffle(batch)
        for row in batch:
            self.ledger.pack(row)
        self.batches.append(batch)
        return True

    def step(self, batches: int) -> None:
        self.ledger.step(batches)
        for _ in range(batches):
            self.weights += self.batches.popleft()

    def save(self) -> str:
        return json.dumps({"weights": self.weights, "ledger": self.ledger.state()})


@pytest.mark.parametrize("seed", range(40))
def test_whenever_a_trainer_dies_no_row_is_lost_and_none_trained_on_twice(seed: int) -> None:
    rng = random.Random(seed)
    groups = {f"g{number}": rng.randint(1, 5) for number in range(20)}
    accumulated, beyond, dropped = rng.randint(1, 3), rng.random() < 0.5, set[HandedRow]()
    saved: str | None = None
    for life in range(30):
        trainer = Trainer(rng, groups, saved)
        while all(
            trainer.pack(rng.randint(1, 4), beyond=beyond) for _ in range(accumulated + 1 - len(trainer.batches))
        ):
            trainer.step(accumulated)
            if rng.random() < 0.3:
                saved = trainer.save()
                dropped |= trainer.dropped
            if life < 25 and rng.random() < 0.2:
                break  # kill -9
    assert saved is not None
    weights = Counter(HandedRow(*row) for row in json.loads(saved)["weights"])
    assert set(weights.values()) == {1}, "none twice"
    last = Trainer(rng, groups, saved)
    left = {*last.queue}
    every = {HandedRow(name, row) for name, rows in groups.items() for row in range(rows)}
    assert every - set(weights) - left <= dropped, "what is neither trained on nor given again was dropped"
    assert not left & set(weights)


def test_a_checkpoint_can_be_written_while_groups_are_handed_over() -> None:
    ledger = Ledger(partly={f"g{number}": [0] for number in range(20_000)})
    ends = threading.Event()

    def hand() -> None:
        number = 0
        while not ends.is_set():
            ledger.hand(f"h{number}", 1)
            number += 1
            time.sleep(0)

    thread = threading.Thread(target=hand)
    thread.start()
    try:
        for _ in range(20):
            assert len(ledger.state()["partly"]) == 20_000
    finally:
        ends.set()
        thread.join()
