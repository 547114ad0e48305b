"""A command-line agent of one file. It makes room as Claude Code does: it asks for a summary as the next turn, with its
tools, and begins again from the task, that summary and its last two turns. Like OpenHands it counts turns.

`benchmarks/compacting_agent.py` gives it to an environment. It runs in a sandbox, on Python alone.
"""

import json
import os
import subprocess
import urllib.request
from typing import Any

GIVEN = json.loads(os.environ["GIVEN"])
"""task, url, system, tools, sum_up, summed_up, every (turns), summary_tokens."""


def ask(messages: list[Any], **more: Any) -> Any:
    """Return the model's next message."""
    asked = {"model": "ours", "messages": messages, "tools": GIVEN["tools"], **more}
    request = urllib.request.Request(
        f"{GIVEN['url']}/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]


def run(arguments: str) -> str:
    """Return what a command printed."""
    try:
        command = json.loads(arguments)["command"]
        done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True, timeout=60)
    except (ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        return f"Error: {error}"
    return (done.stdout + done.stderr).rstrip("\n") or "(no output)"


def work() -> None:
    """Work until the model makes no call."""
    task = [{"role": "system", "content": GIVEN["system"]}, {"role": "user", "content": GIVEN["task"]}]
    messages, turns = list(task), 0
    while (message := ask(messages)).get("tool_calls"):
        messages.append({"role": "assistant", "content": message.get("content"), "tool_calls": message["tool_calls"]})
        for call in message["tool_calls"]:
            told = run(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": told})
        turns += 1
        if turns == GIVEN["every"]:
            asked = [*messages, {"role": "user", "content": GIVEN["sum_up"]}]
            summary = ask(asked, max_tokens=GIVEN["summary_tokens"])["content"] or ""
            said = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
            told = GIVEN["summed_up"].format(summary=summary.strip())
            messages, turns = [*task, {"role": "user", "content": told}, *messages[said[-2] :]], 0


work()
