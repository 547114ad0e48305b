"""What the trainer API tells decides whether a packet arrived, and whether it still is the API that was known."""

import random

import pytest

from envs.delivery.notes import Attempt, KnownAPI, has_arrived
from envs.delivery.trainer_api import RegisteredEnv


class Simulated:
    """The queue of a trainer API, in packets; each batch takes as many of the oldest as fill it."""

    def __init__(self, batch):
        self.batch, self.queue, self.step = batch, [], 0

    def pull(self):
        while len(self.queue) >= self.batch:
            self.step += 1
            del self.queue[: self.batch]

    def seen(self, alone=True, foreign=0):
        return Attempt(0, self.step, self.queue.count("ours"), foreign, alone)


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_where_no_other_environment_stores_it_is_always_known_whether_a_packet_arrived(batch):
    rng, api = random.Random(batch), Simulated(batch)
    for _ in range(500):
        for _ in range(rng.randrange(3)):
            api.queue.append("ours")
        if rng.random() < 0.3:
            api.pull()
        before, stored = api.seen(), rng.random() < 0.5
        if stored:
            api.queue.append("ours")
        for _ in range(rng.randrange(3)):
            api.pull()
        assert has_arrived(before, api.seen(), batch=batch) is stored


def test_beside_another_environment_it_is_known_or_said_not_to_be():
    rng, said = random.Random(0), []
    for _ in range(2000):
        api = Simulated(4)
        api.queue = ["ours"] * rng.randrange(3)
        before, stored = api.seen(alone=False), rng.random() < 0.5
        for who in rng.sample(["ours"] * stored + ["theirs"] * 4, stored + rng.randrange(4)):
            api.queue.append(who)
        stored = "ours" in api.queue[-4:] and api.queue.count("ours") > before.queued
        if rng.random() < 0.5:
            api.pull()
        known = has_arrived(before, api.seen(alone=False), batch=4)
        said.append(known)
        assert known in (None, stored)
    assert {True, False, None} == set(said)


def test_an_environment_that_came_and_went_is_noticed():
    api = Simulated(2)
    before = api.seen()
    api.queue += ["theirs", "theirs"]
    api.pull()
    assert has_arrived(before, api.seen(), batch=2) is None, "two packets of ours can't have left the queue"
    assert has_arrived(before, Attempt(0, 1, 1, foreign=1, alone=True), batch=2) is True
    api.queue += ["theirs", "ours"]
    api.pull()
    assert has_arrived(before, api.seen(foreign=1), batch=2) is None


def answer(env_id, earlier, step=0):
    return RegisteredEnv(
        env_id=env_id,
        wandb_name=f"sums-1a2b_{earlier}",
        starting_step=step,
        num_steps=10,
        checkpoint_dir="",
        checkpoint_interval=1,
    )


def test_an_api_is_the_same_when_it_remembers_our_registrations_and_those_of_others():
    known = KnownAPI.from_registration(answer(3, earlier=1, step=5), batch=4)
    assert (known.registrations, known.foreign) == (2, 2)
    assert known.matches(answer(4, earlier=2, step=5))
    assert known.matches(answer(9, earlier=3, step=8))
    assert not known.matches(answer(0, earlier=0, step=5)), "it knows nobody"
    assert not known.matches(answer(1, earlier=1, step=5)), "it has forgotten us once"
    assert not known.matches(answer(2, earlier=2, step=5)), "it has forgotten others"
