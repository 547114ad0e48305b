"""A tool format of one's own: a call is a line, `CALL name {"argument": "value"}`.

python -m envs.swe serve --env.tool_format tool_format:Lines        (in this folder)
"""

import json
from collections.abc import Mapping, Sequence

from atropos_agent.formats import Reply, ToolFormat
from tools import ToolCall


class Lines(ToolFormat):
    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        shown = "\n".join(json.dumps(schema) for schema in schemas)
        return f'Your tools:\n{shown}\nTo call one, write a line such as CALL name {{"argument": "value"}}'

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        thinking, closed, rest = text.rpartition("</think>")
        calls: list[ToolCall] = []
        content: list[str] = []
        problems: list[str] = []
        for line in rest.splitlines():
            word, _, written = line.partition(" ")
            name, _, arguments = written.partition(" ")
            try:
                if word == "CALL":
                    calls.append(ToolCall(name, dict(json.loads(arguments)), f"call_{first_id + len(calls)}"))
                else:
                    content.append(line)
            except (ValueError, TypeError) as error:
                problems.append(f"{line}: {error}")
        return Reply(thinking if closed else None, "\n".join(content), calls, problems)

    def write(self, call: ToolCall) -> str:
        return f"CALL {call.name} {json.dumps(dict(call.arguments))}"

    def correction(self, problems: Sequence[str]) -> str:
        return "Error: not run: " + "; ".join(problems)
