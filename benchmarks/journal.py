"""What the journal and the outbox cost, as a share of a rollout's CPU.

python benchmarks/journal.py TOKENIZER [--groups 4] [--turns 12] [--reply 300] [--result 400]

Rollouts of `turns` turns with a scripted inference server (no model) and a tool that returns text, in groups
of 8. Measured is the CPU of the whole process, threads included, with the journal and the outbox and
without, in turns; what a rollout costs otherwise is the agent's own work and the line in
`rollouts.jsonl`. A real rollout also pays for HTTP, its sandbox and its verifier, so the share is an upper bound.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.completions import Answer, CompletionsServer
from atropos_agent.engines.route import Route
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from envs.delivery.packing import RowPacker
from envs.delivery.rows import Origin, score_group
from envs.options import EngineConfig
from envs.records.atif import RolloutWriter
from envs.running.group import Group
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.running.replay import TurnRecording
from envs.tasks.sampler import Draw
from envs.types import Reward, Rollout, Task, Verdict
from tools import ToolRegistry

GROUP = 8
CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


class Scripted(CompletionsServer):
    """A server whose replies all call the tool."""

    def __init__(self, template: ChatTemplate, reply: int) -> None:
        super().__init__(EngineConfig(base_url="http://localhost:1", model_name="scripted"))
        ids = template.encode(f"{'The loop ends too early. ' * reply}", continues=True)[:reply]
        assert template.close_id is not None
        self._reply = [*ids, *template.encode(CALL, continues=True), template.close_id]

    async def once(self, **kwargs: Any) -> Answer:
        ids = list(self._reply)
        answer = Answer((kwargs["input_ids"], [ids], [[-0.1234567] * len(ids)], ["stop"]))
        answer.versions = [1]
        return answer


async def one_group(arguments: argparse.Namespace, template: ChatTemplate, folder: Path, journalled: bool) -> float:
    """Return the CPU seconds of one group."""
    text = str("def f(x): return x  # line\n" * (arguments.result // 10))

    async def look() -> str:
        """Look at the file."""
        return text

    task = Task("t", "Fix the bug.")
    config = AgentConfig(max_steps=arguments.turns, max_tokens=2 * arguments.reply)
    async with RolloutWriter(folder) as writer, Journal(folder) as journal:
        group = await Group.draw(journal, lambda _: Draw(task))
        started = time.process_time()

        async def rollout(member: int) -> Rollout:
            route = Route([Scripted(template, arguments.reply)])
            server = TurnRecording(journal, group.number, member).serving(route) if journalled else route
            agent = AtroposAgent(server, ToolRegistry([look]), config, template=template)
            result, reward = await agent.run(task.instruction), float(member % 2)
            done = Rollout(f"r{member}", task, result, Verdict(reward, ""), Reward(reward))
            place = await writer.write(done)
            if journalled:
                await group.add(member, done, place)
            return done

        rollouts = await asyncio.gather(*map(rollout, range(GROUP)))
        scored = score_group(rollouts, Origin(group.number, "g", task.id))
        packets, waiting = await asyncio.to_thread(RowPacker(GROUP).add, scored, step=0)  # what sending costs anyway
        if journalled:
            outbox = Outbox(journal)
            await outbox.add(group, packets, waiting)
            packet = await outbox.next_packet()
            assert packet is not None
            await outbox.confirm(packet)
        return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    for name, default in (("groups", 4), ("turns", 12), ("reply", 300), ("result", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    template = ChatTemplate(AutoTokenizer.from_pretrained(arguments.tokenizer))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(arguments.groups):
        for journalled in (True, False):
            with TemporaryDirectory() as folder:
                seconds[journalled].append(
                    asyncio.run(one_group(arguments, template, Path(folder), journalled)) / GROUP
                )
    with_it, without = statistics.median(seconds[True]), statistics.median(seconds[False])
    print(f"CPU a rollout of {arguments.turns} turns: {1000 * with_it:.1f} ms with journal and outbox, ", end="")
    print(f"{1000 * without:.1f} ms without: {1000 * (with_it - without):+.1f} ms, {with_it / without - 1:+.1%}")


if __name__ == "__main__":
    main()
