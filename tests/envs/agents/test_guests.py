"""Foreign agents at work in containers: how they begin, end, and fail."""

import re
from dataclasses import replace
from functools import partial

import pytest
from real_agents import NamingServer, Says
from small_agent import AGENT, SCRIPT, start

from atropos_agent.types import AgentConfig, StopReason
from envs.agents import guests
from envs.agents.facts import Start
from envs.agents.guests import Guests
from envs.agents.watching import WatchedSession
from envs.running.permanent import is_permanent
from envs.types import Failure, InfraError
from sandboxes.base import Limits, SandboxSpec


def agent(end="", begin="", **more):
    """The small agent. begin, end: what its program does before and after its work."""
    return replace(AGENT, start=partial(start, script=begin + SCRIPT + end), **more)


@pytest.fixture
def works(docker_backend, base_image, hermes):
    """Let an agent work through a script of the model's. Returns its result, the exchanges, and what /app holds."""

    async def work(agent, *script, task="Do it.", **budgets):
        guest = await Guests(agent, docker_backend).prepare(SandboxSpec(base_image, workdir="/app"))
        server = NamingServer(agent, hermes, list(script))
        config = AgentConfig(**({"max_seconds": 60.0} | budgets))
        async with (
            docker_backend.open(guest.spec) as sandbox,
            WatchedSession(server, hermes.template, hermes, config) as session,
        ):
            result = await guest.work(session, sandbox, task)
            return result, server.exchanges, (await sandbox.exec("cat /app/*")).output

    return work


def titled(then):
    """The small agent, which asks for a title before it begins."""
    title = f"shown, TOOLS = TOOLS, []\nask()\nTOOLS = shown\n{then}\n"
    return replace(AGENT, start=partial(start, script=SCRIPT.replace("print(", f"{title}print(", 1)))


_EATS = "pkill -9 python3; kill -9 -1"
WRITES = Says('<tool_call>\n{"name": "bash", "arguments": {"command": "echo hi >/app/f"}}\n</tool_call>')

NOWHERE = Says('<tool_call>\n{"name": "teleport", "arguments": {"command": "home"}}\n</tool_call>')


@pytest.mark.docker
class TestAnAgent:
    async def test_works_and_answers_in_one_row_that_is_the_engines(self, works):
        result, exchanges, files = await works(agent(), WRITES, Says("Done."))
        assert files == "hi\n"
        assert (result.success, result.stop_reason, result.final_response) == (True, StopReason.ANSWERED, "Done.")
        (row,) = result.segments
        last = exchanges[-1]
        assert list(row.tokens) == [*last.prompt, *last.ids]
        assert result.sampled_tokens == sum(len(exchange.ids) for exchange in exchanges)
        told = result.metadata["agent"]
        assert (told["name"], told["exit_code"], told["output"], told["requests"]) == ("small", 0, "began\n", 2)

    async def test_takes_no_instruction_for_an_option(self, works):
        parses = "import getopt, sys; getopt.getopt(sys.argv[1:], 'p:')\n"
        result, exchanges, _ = await works(agent(begin=parses), Says("Done."), task="---\n- Do it.")
        assert result.stop_reason is StopReason.ANSWERED
        assert exchanges

    async def test_can_not_be_given_an_instruction_longer_than_an_argument(self, works):
        await works(agent(), Says("Done."), task="a" * (2**17 - 1))
        with pytest.raises(InfraError, match="131072 bytes") as raised:
            await works(agent(), Says("Done."), task="a" * 2**17)
        assert raised.value.kind is Failure.TASK

    async def test_that_lives_on_is_ended_and_its_output_kept(self, works, monkeypatch):
        monkeypatch.setattr(guests, "_DONE_S", 0.5)
        result, _, _ = await works(agent(end="time.sleep(600)"), Says("Done."))
        assert (result.stop_reason, result.metadata["agent"]["output"]) == (StopReason.ANSWERED, "began\n")

    async def test_that_says_much_has_its_output_cut(self, works):
        talks = "import os; os.write(1, b'x' * 3_000_000); print('the end', flush=True)\n"
        result, _, _ = await works(agent(end=talks), Says("Done."))
        output = result.metadata["agent"]["output"]
        assert len(output) < guests._KEPT + 1000
        assert output.endswith("the end\n")

    async def test_that_crashes_is_graded(self, works):
        crashes = SCRIPT_THAT_CRASHES
        result, _, files = await works(crashes, WRITES, Says("Done."))
        assert (result.success, result.stop_reason, files) == (False, StopReason.BROKE_OFF, "hi\n")
        assert result.error == "small ended with status 3: no more will"
        assert len(result.segments) == 1

    async def test_that_brings_its_sandbox_down_is_graded(self, works):
        kills = Says('<tool_call>\n{"name": "bash", "arguments": {"command": "' + _EATS + '"}}\n</tool_call>')
        result, _, _ = await works(agent(), WRITES, kills, max_seconds=20.0)
        assert result.stop_reason in (StopReason.BROKE_OFF, StopReason.TIME)
        assert not result.success

    async def test_that_does_not_begin_is_our_failure_and_says_why(self, works):
        with pytest.raises(
            InfraError, match=r"small did not start: it ended with status 7 and said: no door"
        ) as caught:
            await works(agent(begin="import sys; print('no door', file=sys.stderr); sys.exit(7)\n"))
        assert caught.value.kind == "sandbox"
        assert is_permanent(caught.value)

    async def test_whose_program_is_missing_never_begins_and_ends_a_run(self, works):
        missing = replace(AGENT, start=lambda at: Start(["no-such-program", at.task]))
        with pytest.raises(
            InfraError, match=r"small did not start: it ended with status 127 .*no-such-program"
        ) as raised:
            await works(missing)
        assert is_permanent(raised.value)

    async def test_that_hangs_before_its_first_request_is_named_so(self, works):
        with pytest.raises(
            InfraError, match=r"small asked for nothing in all its time, \d+ s: .* status 143"
        ) as raised:
            await works(agent(begin="import time; time.sleep(600)\n"), max_seconds=1.0)
        assert not is_permanent(raised.value), "the machine may be slow"

    async def test_that_is_silent_for_long_is_in_the_log_once(self, works, monkeypatch, caplog):
        monkeypatch.setattr(guests, "_BEGINS_S", 0.3)
        monkeypatch.setattr(guests, "_SILENT_S", 0.3)
        with pytest.raises(InfraError):
            await works(agent(begin="import time; time.sleep(600)\n"), max_seconds=2.0)
        assert len(re.findall(r"small has not begun to ask for \d s; it has \d s left", caplog.text)) == 1
        sleeps = Says('<tool_call>\n{"name": "bash", "arguments": {"command": "sleep 2"}}\n</tool_call>')
        await works(agent(), sleeps, Says("Done."))
        assert caplog.text.count("small has asked for nothing") == 1

    async def test_that_is_slow_behind_a_title_is_waited_for(self, works, monkeypatch):
        monkeypatch.setattr(guests, "_DONE_S", 0.2)
        result, _, files = await works(titled("time.sleep(2)"), WRITES, Says("Done."))
        assert (result.stop_reason, files) == (StopReason.ANSWERED, "hi\n")
        assert result.metadata["gateway"]["branches"] == {"side call": 1, "main": 2}

    async def test_that_gets_no_further_than_a_title_is_our_failure(self, works, monkeypatch):
        with pytest.raises(InfraError, match=r"asked for no reply with its tools: it ended with status 3 and said: no"):
            await works(titled("sys.exit(print('no', flush=True) or 3)"))
        monkeypatch.setattr(guests, "_PREPARES_S", 0.5)
        with pytest.raises(InfraError, match="asked for no reply with its tools"):
            await works(titled("time.sleep(600)"))

    async def test_that_runs_out_of_turns_or_time_is_graded(self, works, monkeypatch):
        result, _, _ = await works(agent(), WRITES, WRITES, max_steps=1)
        assert (result.stop_reason, len(result.steps)) == (StopReason.MAX_STEPS, 1)
        sleeps = Says('<tool_call>\n{"name": "bash", "arguments": {"command": "sleep 600"}}\n</tool_call>')
        result, _, _ = await works(agent(), sleeps, max_seconds=2.0)
        assert (result.stop_reason, result.success) == (StopReason.TIME, False)

    async def test_that_counts_its_turns_itself_has_had_them(self, works):
        counts = replace(SCRIPT_THAT_CRASHES, failures={3: "its turns were over"})
        result, _, _ = await works(counts, NOWHERE, max_steps=1)
        assert (result.stop_reason, result.error) == (StopReason.MAX_STEPS, None)
        result, _, _ = await works(agent(), Says("Done."), max_steps=1)
        assert result.stop_reason is StopReason.ANSWERED

    async def test_that_submits_with_a_call_has_not_answered_by_text(self, works):
        submits = replace(agent(), submits="SUBMIT")
        call = Says('<tool_call>\n{"name": "bash", "arguments": {"command": "echo SUBMIT"}}\n</tool_call>')
        result, _, _ = await works(replace(submits, start=SCRIPT_THAT_CRASHES.start), call)
        assert (result.success, result.stop_reason) == (True, StopReason.SUBMITTED)
        result, _, _ = await works(submits, Says("Done."))
        assert (result.success, result.stop_reason) == (False, StopReason.BROKE_OFF)


@pytest.mark.parametrize("hosts", [(), ("pypi.org",)])
def test_no_proxy_stands_on_the_way_to_the_door(hosts):
    """The image's own can't be reached; that of allowed hosts is needed for others."""
    told = guests._proxy_overrides(SandboxSpec("image", limits=Limits(allowed_hosts=hosts)))
    assert all(told.get(name) == "" for name in ("HTTP_PROXY", "https_proxy", "all_proxy")) == (not hosts)
    assert ("127.0.0.1" in told.get("no_proxy", "")) == bool(hosts)


DIES = SCRIPT.replace("    message = ask()\n", "    if len(messages) > 1: sys.exit(3)\n    message = ask()\n")
SCRIPT_THAT_CRASHES = replace(AGENT, start=partial(start, script=DIES), failures={3: "no more will"})
