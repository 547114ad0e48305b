"""A teacher's scores on the way to trainers: Atropos' fields, tokens' advantages, other trainers' own fields."""

from dataclasses import replace

import orjson
import pytest
from row_samples import rollout, score, sent

from atropos_agent.types import TeacherScores
from envs.delivery.estimators import Estimator
from envs.delivery.exports import Export, tinker_rows, trl_rows, trl_samples, verifiers_episodes, verl_rows
from envs.delivery.packing import RowPacker
from envs.delivery.row_check import check_group
from envs.delivery.rows import read_rows
from envs.delivery.worth import Loss

ALONE = TeacherScores([-0.25, -1.5])
WITH_TOP = TeacherScores([-0.25, -1.5], [[2, 9], [7, 3]], [[-0.25, -2.0], [-0.5, -1.5]])


def taught(made, *scores):
    segments = [replace(row, teacher=one) for row, one in zip(made.result.segments, scores, strict=True)]
    return replace(made, result=replace(made.result, segments=tuple(segments)))


def group(scores=ALONE, weight=0.0, rewards=(1.0, 0.0)):
    """Two rollouts of one row with the tokens 1, 2, 3, of which 2 and 3 were sampled with logprobs of -0.5."""
    made = [taught(rollout(reward, name=f"r{n}"), scores) for n, reward in enumerate(rewards)]
    scored = score(made, estimator=Estimator(teacher_weight=weight))
    return Export(scored, {one.id: one for one in made})


def test_a_sampled_token_is_scored_alone_without_its_rivals():
    wire = group().scored.to_wire()
    assert wire["distill_token_ids"] == [[(), [2], [3]]] * 2
    assert wire["distill_logprobs"] == [[(), [-0.25], [-1.5]]] * 2
    assert check_group(wire) == []
    assert wire["advantages"] == [[0.0, 1.0, 1.0], [0.0, -1.0, -1.0]], "the weight is 0"


def test_the_likeliest_tokens_stand_in_its_place_if_wanted():
    wire = group(WITH_TOP).scored.to_wire()
    assert wire["distill_token_ids"][0] == [(), [2, 9], [7, 3]]
    assert wire["distill_logprobs"][0] == [(), [-0.25, -2.0], [-0.5, -1.5]]
    assert wire["generation_params"]["teacher_logprobs"][0] == [-0.25, -1.5]


def test_without_a_teacher_the_fields_are_empty():
    wire = score([rollout(1.0)]).to_wire()
    assert wire["distill_token_ids"] is wire["distill_logprobs"] is None


@pytest.mark.parametrize("scores", [ALONE, WITH_TOP])
def test_rows_that_wait_for_others_keep_their_scores(scores):
    scored = group(scores, weight=0.5).scored
    packer = RowPacker(3)
    _, waiting = packer.add(scored, step=0)
    (packet,), _ = RowPacker(3, waiting).add(group(scores, weight=0.5).scored, step=0)
    arrived, made = sent(packet), scored.to_wire()
    for name in ("distill_token_ids", "distill_logprobs", "advantages"):
        assert arrived[name][:2] == orjson.loads(orjson.dumps(made[name]))
    assert [row.teacher for row in read_rows({**made, "messages": None})] == [scores] * 2


def test_the_reverse_kl_is_each_tokens_own_advantage():
    scored = group(weight=2.0).scored
    assert scored.rows[0].advantages(Loss.TOKENS) == [0.0, 1.0 + 2 * 0.25, 1.0 - 2 * 1.0]
    assert next(tinker_rows(scored.rows))["loss_fn_inputs"]["advantages"]["data"] == [1.5, -1.0]


def test_a_row_of_several_gets_its_share():
    made = taught(rollout(1.0, 2), ALONE, TeacherScores([-0.25] * 3))
    scored = score([made], estimator=Estimator("none", teacher_weight=1.0))
    assert scored.rows[0].advantages(Loss.ROWS) == [0.0, 0.25 * 2 / 5, -1.0 * 2 / 5]


def test_a_group_of_equal_rewards_has_something_to_learn_from_a_teacher():
    assert group(weight=1.0, rewards=(1.0, 1.0)).scored.has_signal
    assert not group(weight=0.0, rewards=(1.0, 1.0)).scored.has_signal
    assert not score([rollout(1.0), rollout(0.0)], estimator=Estimator("none")).has_signal


def test_verl_has_the_scores_in_front_of_their_tokens():
    (fields, _) = verl_rows(group(WITH_TOP).scored.rows)
    assert fields["extra_fields"]["teacher_ids"] == [[2, 9], [7, 3], [0, 0]]
    assert fields["extra_fields"]["teacher_logprobs"] == [[-0.25, -2.0], [-0.5, -1.5], [0.0, 0.0]]
    (fields, _) = verl_rows(group().scored.rows)
    assert fields["extra_fields"]["teacher_logprobs"] == [[-0.25], [-1.5], [0.0]]


def test_verifiers_has_them_as_reference_logprobs():
    (episode, _) = verifiers_episodes(group())
    assert [node["reference_logprobs"] for node in episode["traces"][0]["nodes"]] == [None, [-0.25, -1.5]]


def test_trl_takes_one_advantage_a_row_and_refuses_more_by_name():
    assert [sample["advantage"] for sample in trl_samples(group())] == [1.0, -1.0]
    with pytest.raises(ValueError, match=r"--env.teacher_weight .* one a row"):
        [*trl_samples(group(weight=1.0))]
    with pytest.raises(ValueError, match=r"--env.teacher_weight .* GRPOTrainer"):
        [*trl_rows(group(weight=1.0).scored.rows)]
