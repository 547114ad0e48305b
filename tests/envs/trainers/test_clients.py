"""A trainer's client samples for an environment's rollouts; and the one row that some trainers take."""

from functools import partial

import pytest
from played import Policy, close, longer, rollouts
from row_samples import rollout, score

from atropos_agent.engines.objects import ObjectServer, Sampled
from envs.trainers.clients import Clients, one_row


class Client:
    """Plays a trainer's client."""

    def __init__(self, tokenizer):
        self.policy = Policy(tokenizer)

    async def once(self, ids, params, session):
        return Sampled(*self.policy.reply(ids), "stop", 3)


async def test_a_client_samples_a_rollout_in_a_run_that_stays_open(smollm2_tokenizer, tokenizer_folder, tmp_path):
    clients = Clients("mine", lambda client: partial(ObjectServer, client))
    client, options = Client(smollm2_tokenizer), [f"--env.run_dir={tmp_path}"]

    async def made(task, **given):
        return await clients.rollout(client, "sums:Sums", options, task, {"temperature": 1.0}, **given)

    try:
        (row,), cut = await made("sum-3", tokenizer=tokenizer_folder)
        assert not cut
        assert {version for version in row.versions if version is not None} == {3}
        (second,), _ = await made("sum-4", tokenizer=tokenizer_folder)
        assert second.rollout_id != row.rollout_id
        assert len(clients._runs) == len([*tmp_path.iterdir()]) == 1
    finally:
        await close(clients)


async def test_options_of_the_advantages_are_refused_by_the_trainers_name():
    clients = Clients("mine", lambda client: partial(ObjectServer, client))
    with pytest.raises(ValueError, match=r"leave out --env\.estimator: mine makes the advantages itself"):
        await clients.rollout(object(), "sums:Sums", ["--env.estimator=none"], "sum-3", {})


def test_one_row_ends_with_its_last_sampled_token():
    (row,) = score([rollout(1.0, 1)]).rows
    assert one_row([longer(row)], "mine") == {
        "tokens": [1, 2, 3, 70, 71, 72],
        "mask": [0, 1, 1, 0, 0, 1],
        "logprobs": [0.0, -0.5, -0.5, 0.0, 0.0, -0.75],
        "start": 1,
    }


def test_a_rollout_of_several_rows_is_refused():
    several = next(rows for rows, _ in rollouts(1) + rollouts(2) + rollouts(3) if len(rows) > 1)
    with pytest.raises(ValueError, match=r"has \d rows, and mine takes one a rollout"):
        one_row(several, "mine")
