"""An environment that another trainer's configuration names, and what its sampling settings mean here."""

import asyncio
import gc
import sys
from types import SimpleNamespace

import pytest
from sums import Sums, right

from atropos_agent.engines.objects import ObjectServer, Sampled
from atropos_agent.tokens.template import ChatTemplate
from envs.options import EngineConfig, UsageError
from envs.rewards import Shaping
from envs.running.group import group_outcomes
from envs.trainers.named import Runs, check_rows, resolve_environment, rollout, sampling_of, task_of


def test_options_are_those_of_the_environments_command_line():
    env_cls, options = resolve_environment("sums:Sums", ["--env.max_steps=3", "--env.group_size", "2"])
    assert env_cls is Sums
    assert (options.env.max_steps, options.env.group_size) == (3, 2)


def test_what_is_misspelt_is_told():
    with pytest.raises(UsageError, match="max_step"):
        resolve_environment("sums:Sums", ["--env.max_step=3"])
    with pytest.raises(ValueError, match="sums has no Sum"):
        resolve_environment("sums:Sum", [])


def test_sampling_settings_are_our_options_or_change_nothing_or_are_refused():
    told = {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "max_tokens": 64, "repetition_penalty": 1.0, "n": 1}
    assert sampling_of({**told, "seed": None}) == {"temperature": 0.7, "top_p": 1.0, "max_reply_tokens": 64}
    assert sampling_of({"top_k": 20, "min_p": 0.1}) == {"top_k": 20, "min_p": 0.1}
    with pytest.raises(ValueError, match="no effect here: repetition_penalty, typical_p"):
        sampling_of({"repetition_penalty": 1.1, "typical_p": 0.5})


@pytest.mark.parametrize("named", [None, "", 7])
def test_a_row_of_a_dataset_without_a_task_is_told_with_its_place(named):
    assert task_of("sum-3", "label") == "sum-3"
    with pytest.raises(ValueError, match=rf"has {named!r} as its label: give the id of one of --env\.tasks"):
        task_of(named, "label")


@pytest.mark.parametrize(("read", "told"), [(0.5, {"timeout": 1}), (60.0, {"timeout": 60}), (None, {})])
def test_the_timeout_of_verifiers_client_is_the_inference_servers(read, told):
    assert Runs.timeout_of(SimpleNamespace(timeout=SimpleNamespace(read=read))) == told
    assert Runs.timeout_of(SimpleNamespace()) == {}


class Engine:
    """An inference server that is an object, as verl's is."""

    def __init__(self, template):
        self.template = template

    async def once(self, ids, params, session):
        said = self.template.encode(right(self.template.decode(ids)), continues=True)
        ids = [*said, self.template.close_id]
        return Sampled(ids, [-0.5] * len(ids), "stop", 3)


@pytest.fixture
def runs(make_runs):
    return make_runs()


@pytest.fixture
def make_runs(smollm2_tokenizer, tokenizer_folder, tmp_path):
    engine = Engine(ChatTemplate(smollm2_tokenizer))

    async def make(env_cls, command, options):
        return env_cls(options.env, options.engines)

    def served(config, reasoning_config=None):
        return ObjectServer(engine, config, reasoning_config)

    options = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path}"]
    return lambda: Runs("sums:Sums", options, "theirs", served, make)


def opened(runs, heat=1.0):
    return runs.run(EngineConfig(model_name="m"), {"temperature": heat}, training=True)


def rows_of(given):
    return check_rows(given.scored, None)


async def test_a_rollout_is_made_in_the_run_of_its_sampling_and_is_done_with_then(runs, tmp_path):
    async with runs:
        feeds = [await opened(runs, heat) for heat in (1.0, 0.5, 1.0)]
        assert feeds[0] is feeds[2]
        assert feeds[0].run.config.temperature == 1.0
        rows = await rollout(feeds[1], "sum-2", "mine", rows_of)
        with pytest.raises(ValueError, match="mine"):
            await rollout(feeds[1], "sum-2", "mine", rows_of)
    assert [row.score for row in rows] == [1.0]
    assert len(list(tmp_path.iterdir())) == 2


async def test_a_run_that_has_ended_is_opened_again(runs):
    async with runs:
        first = await opened(runs)
        await rollout(first, "sum-2", "one", rows_of)
        first.stop()
        second, same = await asyncio.gather(opened(runs), opened(runs))
        assert second is same is not first
        assert await rollout(second, "sum-2", "two", rows_of)


async def test_worker_processes_of_one_trainer_have_runs_of_their_own(make_runs):
    async with make_runs() as first:
        async with make_runs() as second:
            feeds = [await opened(runs) for runs in (first, second)]
            for fed in feeds:
                assert await rollout(fed, "sum-2", "mine", rows_of)
        async with make_runs() as third:
            feeds.append(await opened(third))
    places = [fed.run.env.run_dir for fed in feeds]
    assert places[1] == places[2] == places[0].with_name(f"{places[0].name}-2")


async def test_a_rollout_that_can_not_be_used_is_done_with_too(runs):
    async with runs:
        fed = await opened(runs)
        with pytest.raises(ValueError, match="not now"):
            await rollout(fed, "sum-2", "mine", raising)
    assert [outcome.state for outcome in group_outcomes(fed.run.env.run_dir)] == ["confirmed"]


async def test_a_run_that_could_not_be_opened_is_tried_again(runs, monkeypatch):
    async with runs:
        with monkeypatch.context() as patch, pytest.raises(ValueError, match="not now"):
            patch.setattr(Sums, "resources", raising)
            await opened(runs)
        assert await rollout(await opened(runs), "sum-2", "mine", rows_of)


def raising(_):
    raise ValueError("not now")


def test_runs_are_closed_with_their_event_loop_and_opened_in_the_next(runs, caplog):
    async def made(name):
        async with asyncio.timeout(60):
            return await rollout(await opened(runs), "sum-2", name, rows_of)

    assert all(asyncio.run(made(name)) for name in ("one", "two"))
    assert not caplog.records


def test_a_run_whose_loop_is_closed_before_it_was_open_ends_without_a_traceback(runs, monkeypatch):
    """As in a program that a signal ends."""
    monkeypatch.setattr(runs, "_make", lambda *_: asyncio.Event().wait())
    loop = asyncio.new_event_loop()
    asking = loop.create_task(opened(runs))
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()
    runs._held.clear()
    del asking
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    gc.collect()
    assert not said


def test_a_trainer_without_advantages_of_tokens_refuses_a_teachers_weight_by_name():
    options = ["--env.teacher=http://localhost:1/v1", "--env.teacher_weight=1"]
    with pytest.raises(ValueError, match=r"--env.teacher_weight .* verl takes none"):
        Runs("sums:Sums", options, "verl", ObjectServer, None)


@pytest.mark.parametrize(
    "option", ["--env.estimator=group-mean", "--env.length_penalty=0.5", "--env.summary_weight=0.5"]
)
def test_a_trainer_that_makes_the_advantages_refuses_options_of_ours_by_name(option):
    name = option.partition("=")[0]
    with pytest.raises(ValueError, match=rf"leave out {name}: verl makes the advantages"):
        Runs("sums:Sums", [option], "verl", ObjectServer, None)


COSTLY = Shaping(turn_error=0.5)
CHEAP = Shaping(malformed_call=0.5)


def test_a_shaping_that_gives_turns_advantages_of_their_own_is_refused_at_the_start():
    with pytest.raises(ValueError, match=r"--env.reward test_named:COSTLY: turn_malformed and turn_error .* verl"):
        Runs("sums:Sums", ["--env.reward=test_named:COSTLY"], "verl", ObjectServer, None)
    Runs("sums:Sums", ["--env.reward=test_named:CHEAP"], "verl", ObjectServer, None)
