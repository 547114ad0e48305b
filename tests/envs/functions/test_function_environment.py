"""A function as an environment: what it is given, what its value is worth, what its failures become."""

import asyncio
import math
import threading

import pytest
from asking import ask, ask_sync
from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient

from atropos_agent.types import StopReason
from envs.functions import Prompt, rollout, single_turn
from envs.functions.config import FunctionConfig
from envs.records.read import read_rollouts
from envs.running.commands import process_groups
from envs.running.permanent import NothingWorks
from envs.types import Failure, Reward, Seat, Verdict


async def answers(task, llm):
    return float(await ask(llm, task.instruction) == "four")


async def test_a_function_is_called_with_its_rollouts_own_model_and_its_value_is_the_reward(attempted):
    (rollout_,) = await attempted(answers, says=lambda prompt: "four")
    assert (rollout_.verdict.reward, rollout_.result.final_response) == (1.0, "four")
    assert [segment.turns for segment in rollout_.result.segments] == [1]


async def test_a_sync_function_runs_beside_others(attempted):
    meeting = threading.Barrier(3)  # which none gets past alone

    def answers(task, llm):
        meeting.wait(120)
        return float(ask_sync(llm, task.instruction) == "four")

    rollouts = await attempted(answers, ["a", "b", "c"], says=lambda prompt: "four")
    assert [one.verdict.reward for one in rollouts] == [1.0, 1.0, 1.0]


async def test_a_verdict_is_taken_as_it_is(attempted):
    async def judges(task, llm):
        await ask(llm, "?")
        return Verdict(0.5, "half of it", metrics={"length": 4.0})

    (rollout_,) = await attempted(judges, says=lambda prompt: "four")
    assert rollout_.verdict == Verdict(0.5, "half of it", metrics={"length": 4.0})


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "returned nothing: there is no reward"), ("well", "returned a str"), (math.nan, "nan")],
)
async def test_what_is_no_reward_is_a_failure_and_never_0(attempted, value, said):
    async def judges(task, llm):
        await ask(llm, "?")
        return value

    found = await attempted(judges, says=lambda prompt: "four")
    assert len(found) == 0
    ((_, _, error),) = found.failed
    assert error.kind is Failure.VERIFIER and said in str(error)


async def test_a_function_that_raises_is_tried_again(attempted):
    tries = []

    async def fails_once(task, llm):
        tries.append(await ask(llm, "?"))
        if len(tries) == 1:
            raise KeyError("a mistake of ours")
        return 1.0

    (rollout_,) = await attempted(fails_once, says=lambda prompt: "four", attempts=2)
    assert rollout_.verdict.reward == 1.0 and len(tries) == 2
    assert len(rollout_.result.steps) == 1, "what the first attempt sampled is not in the second's rows"


async def test_an_inference_server_that_fails_is_our_failure_whatever_the_function_makes_of_it(attempted, engine):
    async def swallows(task, llm):
        try:
            await ask(llm, "?")
        except Exception:
            return 0.0

    engine.edit = lambda number, choice: choice.update(token_ids=[])
    found = await attempted(swallows, says=lambda prompt: "four")
    ((_, _, error),) = found.failed
    assert error.kind in (Failure.ENGINE, Failure.TOKENS)


async def test_a_budgets_end_is_graded_when_the_function_raises_of_it(attempted):
    async def goes_on(task, llm):
        await ask(llm, "one", "two", "three")
        return 1.0

    (rollout_,) = await attempted(goes_on, says=lambda prompt: "four", max_steps=2)
    assert rollout_.result.stop_reason is StopReason.MAX_STEPS
    assert rollout_.verdict.reward == 0.0 and "max_steps" in rollout_.verdict.explanation
    assert len(rollout_.result.steps) == 2

    strict = rollout(tasks=["?"], over_budget=None)(goes_on)
    found = await attempted(strict, says=lambda prompt: "four", max_steps=2)
    assert [error.kind for _, _, error in found.failed] == [Failure.ENVIRONMENT]


async def test_a_function_that_handles_the_budgets_end_says_itself_what_it_is_worth(attempted):
    async def goes_on(task, llm):
        try:
            await ask(llm, "one", "two", "three")
        except Exception:
            return 0.3

    (rollout_,) = await attempted(goes_on, says=lambda prompt: "four", max_steps=2)
    assert rollout_.verdict.reward == 0.3


async def test_a_turns_reward_is_the_advantage_of_its_own_tokens(attempted):
    async def rewards_turns(task, llm):
        await ask(llm, "one")
        llm.reward(0.5)
        llm.reward(0.25)
        await ask(llm, "one", "two")
        llm.reward(-1.0)
        llm.reward(2.0, "chatcmpl-1")
        with pytest.raises(ValueError, match="no turn 3"):
            llm.reward(1.0, 3)
        with pytest.raises(ValueError, match="finite"):
            llm.reward(math.inf)
        return 1.0

    (saved,) = await attempted(rewards_turns, says=lambda prompt: "four")
    assert list(saved.reward.turn_advantages) == [0.75, 2.0, -1.0]


def half(task, outcome):
    return Reward(outcome.verdict.reward / 2, explanation="half of it")


def half_and_turns(task, outcome):
    return Reward(outcome.verdict.reward / 2, [10.0, 20.0, 30.0])


@pytest.mark.parametrize(("function", "turns"), [("half", [1.0, 0.0, -1.0]), ("half_and_turns", [11.0, 20.0, 29.0])])
async def test_a_turns_reward_counts_beside_a_reward_function(attempted, function, turns):
    async def rewards_turns(task, llm):
        await ask(llm, "one")
        llm.reward(1.0)
        await ask(llm, "one", "two")
        llm.reward(-1.0)
        return 1.0

    (saved,) = await attempted(rewards_turns, says=lambda prompt: "four", reward=f"{__name__}:{function}")
    assert (saved.reward.value, list(saved.reward.turn_advantages)) == (0.5, turns)


async def test_prompt_templates_stand_with_their_digests_in_every_row(attempted, tmp_path):
    greeting = Prompt("Hello {name}", version="2")

    @rollout(tasks=["?"], resources={"greeting": greeting})
    async def greets(task, llm, greeting):
        await ask(llm, greeting.format(name="you"))
        return 1.0

    (saved,) = await attempted(greets, says=lambda prompt: "four")
    assert saved.result.metadata["resources"] == {"greeting": {"version": "2", "digest": greeting.digest}}
    assert saved.result.messages[0]["content"] == "Hello you"
    file = tmp_path / "greeting-3.txt"
    file.write_text("Good evening {name}")
    (saved,) = await attempted(greets, prompts={"greeting": file}, run_dir=tmp_path / "other")
    assert saved.result.messages[0]["content"] == "Good evening you"
    assert saved.result.metadata["resources"]["greeting"]["version"] == "greeting-3.txt"


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ({"greting": "x"}, "greting.*did you mean greeting"),
        ({"greeting": "nowhere"}, "nowhere.*give a file"),
        ({"greeting": "other"}, "must have the names of the function's own: name"),
    ],
)
async def test_a_prompt_template_that_can_not_stand_in_is_refused_at_the_start(prompts, said, tmp_path):
    @rollout(tasks=["?"], resources={"greeting": Prompt("Hello {name}")})
    async def greets(task, llm, greeting): ...

    (tmp_path / "other").write_text("Hello {someone}")
    config = FunctionConfig(prompts={name: tmp_path / file for name, file in prompts.items()})
    with pytest.raises(ExceptionGroup) as problems:
        await greets.environment.preflight(config)
    assert problems.group_contains(ValueError, match=said)


async def test_a_function_may_have_a_sandbox_of_the_tasks_own(make_function, attempt):
    @rollout(tasks=["?"])
    async def works(task, llm, sandbox, seat):
        await sandbox.write_file("answer", (await ask(llm, "?")).encode())
        return float((await sandbox.exec("cat answer")).output == "four") + seat.step

    outcome = await attempt(make_function(works, sandbox="local"), Seat(step=3))
    assert outcome.verdict.reward == 4.0


async def test_one_reply_to_messages_is_the_simplest_case(attempted):
    @single_turn(tasks=["What is 2 + 2?"], score=lambda task, answer: float(answer == "four"))
    def words(prompt):
        return [{"role": "system", "content": "Answer in words."}, {"role": "user", "content": prompt}]

    (saved,) = await attempted(words, says=lambda prompt: "four" if "Answer in words." in prompt else "4")
    assert saved.verdict.reward == 1.0
    assert [message["role"] for message in saved.result.messages] == ["system", "user", "assistant"]
    assert words("x") == words.work.function("x"), "it is still what was written"


async def test_groups_are_made_and_delivered_as_of_any_environment(make_function):
    replies = iter(["four", "five"] * 2)

    env = make_function(rollout(tasks=["?"])(answers), group_size=4, total_steps=1, says=lambda prompt: next(replies))
    path = await process_groups(env)
    assert path.read_text().count("\n") == 1
    assert sorted(env.tasks()[0][0].id) == sorted("task-0")


async def test_an_attempt_after_a_servers_failure_gets_the_replies_that_were_sampled(make_function, engine):
    seen = []

    def says(prompt):
        seen.append(prompt.count("<|im_start|>user"))
        if len(seen) == 1:
            engine.faults.append(400)  # the next request's answer
        return "four"

    async def asks_twice(task, llm):
        await ask(llm, "one", "two")
        return 1.0

    env = make_function(rollout(tasks=["?"])(asks_twice), group_size=1, total_steps=1, says=says)
    await process_groups(env)
    assert seen == [1, 2], "the first turn was sampled once, by the attempt that failed in the second"
    (saved,) = read_rollouts(env.run_dir)
    assert len(saved.result.steps) == 2


async def test_a_picture_that_a_tool_of_the_functions_returns_fails_nothing(attempted):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

    async def looks(task, llm):
        schema = {"type": "object", "properties": {}}
        tools = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": schema}}]
        messages = [{"role": "user", "content": task.instruction}]
        unread = DefaultAsyncHttpxClient(verify=False)
        async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, http_client=unread) as client:
            reply = (await client.chat.completions.create(model="m", messages=messages, tools=tools)).choices[0].message
            (call,) = reply.tool_calls
            messages += [reply, {"role": "tool", "tool_call_id": call.id, "content": [picture]}]
            last = await client.chat.completions.create(model="m", messages=messages, tools=tools)
        return float(last.choices[0].message.content == "a picture")

    def says(prompt):
        seen = "[image/png, 3 bytes: not shown to this model]" in prompt
        return "a picture" if seen else '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'

    (rollout_,) = await attempted(looks, says=says)
    assert (rollout_.verdict.reward, rollout_.result.counts.unshown) == (1.0, 1)


async def test_a_function_whose_first_request_is_refused_is_a_failure_that_names_it(attempted):
    async def asks(task, llm):
        try:
            await ask(llm, [{"type": "image_url", "image_url": {"url": "http://example.com/x.png"}}])
        except BadRequestError:
            return 0.0

    found = await attempted(asks, says=lambda prompt: "four")
    ((_, _, error),) = found.failed
    assert len(found) == 0 and "what the agent asked first was refused" in str(error)


@pytest.mark.parametrize("value", [None, [], {"role": "user", "content": "?"}, [{"role": "robot"}], 3], ids=repr)
async def test_what_is_no_message_ends_a_run(make_function, value):
    says_nothing = single_turn(tasks=["a", "b"], score=lambda answer: 1.0)(lambda prompt: value)
    env = make_function(says_nothing, total_steps=1, group_size=6, attempts=2)
    with pytest.raises(NothingWorks, match=r"lambda.* returned .*(messages|a message is)"):
        async with asyncio.timeout(60):
            await process_groups(env)


async def forgets(task, llm):
    await ask(llm, task.instruction)


async def asks_nobody(task, llm):
    return 1.0


@pytest.mark.parametrize(
    ("function", "said"), [(forgets, "forgets returned nothing"), (asks_nobody, "no reply was sampled")]
)
async def test_a_function_that_forgets_its_reward_or_its_model_ends_a_run(make_function, function, said):
    env = make_function(rollout(tasks=["a", "b"])(function), total_steps=1, group_size=6, attempts=2)
    with pytest.raises(NothingWorks, match=said):
        async with asyncio.timeout(60):
            await process_groups(env)
