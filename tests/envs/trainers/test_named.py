"""An environment that another trainer's configuration names, and what its sampling settings mean here."""

import pytest
from sums import Sums, right

from atropos_agent.engines.objects import ObjectServer, Sampled
from atropos_agent.tokens.template import ChatTemplate
from envs.options import EngineConfig, UsageError
from envs.trainers.named import Runs, named, rollout, sampling_of, sound_rows


def test_options_are_those_of_the_environments_command_line():
    env_cls, options = named("sums:Sums", ["--env.max_steps=3", "--env.group_size", "2"])
    assert env_cls is Sums
    assert (options.env.max_steps, options.env.group_size) == (3, 2)


def test_what_is_misspelt_is_told():
    with pytest.raises(UsageError, match="max_step"):
        named("sums:Sums", ["--env.max_step=3"])
    with pytest.raises(ValueError, match="sums has no Sum"):
        named("sums:Sum", [])


def test_sampling_settings_are_our_options_or_change_nothing_or_are_refused():
    told = {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "max_tokens": 64, "repetition_penalty": 1.0, "n": 1}
    assert sampling_of({**told, "seed": None}) == {"temperature": 0.7, "top_p": 1.0, "max_reply_tokens": 64}
    assert sampling_of({"top_k": 20, "min_p": 0.1}) == {"top_k": 20, "min_p": 0.1}
    with pytest.raises(ValueError, match="no effect here: repetition_penalty, typical_p"):
        sampling_of({"repetition_penalty": 1.1, "typical_p": 0.5})


class Engine:
    """An inference server that is an object, as verl's is."""

    def __init__(self, template):
        self.template = template

    async def once(self, ids, params, session):
        said = self.template.encode(right(self.template.decode(ids)), continues=True)
        ids = [*said, self.template.close_id]
        return Sampled(ids, [-0.5] * len(ids), "stop", 3)


async def test_a_rollout_is_made_in_the_run_of_its_sampling_and_is_done_with_then(
    smollm2_tokenizer, tokenizer_folder, tmp_path
):
    engine = Engine(ChatTemplate(smollm2_tokenizer))
    options = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path}"]

    def served(config, reasoning_config=None):
        return ObjectServer(engine, config, reasoning_config)

    async def make(env_cls, command, options):
        return env_cls(options.env, options.engines)

    async with Runs("sums:Sums", options, "theirs", served, make) as runs:
        opened = [
            await runs.run(str(heat), EngineConfig(model_name="m"), {"temperature": heat}, training=True)
            for heat in (1.0, 0.5, 1.0)
        ]
        assert opened[0] is opened[2]
        assert opened[0].run.config.temperature == 1.0
        rows = await rollout(opened[1], "sum-2", "mine", lambda given: sound_rows(given.scored))
        with pytest.raises(ValueError, match="mine"):
            await rollout(opened[1], "sum-2", "mine", lambda given: given)
    assert [row.score for row in rows] == [1.0]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_trainer_without_advantages_of_tokens_refuses_a_teachers_weight_by_name():
    options = ["--env.teacher=http://localhost:1/v1", "--env.teacher_weight=1"]
    with pytest.raises(ValueError, match=r"--env.teacher_weight .* verl takes none"):
        Runs("sums:Sums", options, "verl", ObjectServer, None)


@pytest.mark.parametrize(
    "option", ["--env.estimator=group-mean", "--env.length_penalty=0.5", "--env.summary_weight=0.5"]
)
def test_a_trainer_that_makes_the_advantages_refuses_options_of_ours_by_name(option):
    name = option.partition("=")[0]
    with pytest.raises(ValueError, match=rf"{name} has no effect: verl makes the advantages"):
        Runs("sums:Sums", [option], "verl", ObjectServer, None)
