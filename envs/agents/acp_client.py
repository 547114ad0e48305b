"""A client of the Agent Client Protocol, for one task: it runs in the sandbox, on Python 3.9 or later.

python3 acp_client.py WORKDIR TASK PROGRAM [ARGUMENT ...]

It starts the agent's program, gives it the task over JSON-RPC and allows whatever the agent asks to be allowed: the
sandbox holds it. The agent uses its own tools, since this client offers none.
Source: https://agentclientprotocol.com/protocol
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

AUTH_REQUIRED = -32000
NO_SUCH_METHOD = {"code": -32601, "message": "this client has no such method"}


class Failed(Exception):
    """The agent answered with an error."""


class Talk:
    """The conversation with an agent's program."""

    def __init__(self, argv: list[str]) -> None:
        self._program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._program.stdin is not None and self._program.stdout is not None  # noqa: S101
        self._to, self._from = self._program.stdin, self._program.stdout
        self._asked = 0

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Return the result of a request; requests of the agent are answered meanwhile. Raises Failed."""
        self._asked += 1
        self._send({"id": self._asked, "method": method, "params": params})
        for said in self._said():
            if "method" in said:
                self._answer(said)
            elif said.get("id") == self._asked:
                if "error" in said:
                    raise Failed(method, said["error"])
                return said.get("result") or {}
        raise SystemExit(f"the agent ended with status {self._program.wait()} before it answered {method}")

    def end(self) -> None:
        """End the program, as its standard input ends."""
        self._to.close()
        try:
            self._program.wait(5)
        except subprocess.TimeoutExpired:
            self._program.kill()

    def _said(self) -> Iterator[dict[str, Any]]:
        for line in self._from:
            try:
                said = json.loads(line)
            except ValueError:  # a program's own words
                print(line.decode(errors="replace"), end="", file=sys.stderr)
                continue
            if isinstance(said, dict):
                yield said

    def _answer(self, asked: dict[str, Any]) -> None:
        if "id" not in asked:  # a notice
            return
        if asked["method"] != "session/request_permission":
            self._send({"id": asked["id"], "error": NO_SUCH_METHOD})
            return
        kinds = {option["kind"]: option["optionId"] for option in asked["params"]["options"]}
        allowed = kinds.get("allow_once") or kinds.get("allow_always")
        outcome = {"outcome": "selected", "optionId": allowed} if allowed else {"outcome": "cancelled"}
        self._send({"id": asked["id"], "result": {"outcome": outcome}})

    def _send(self, message: dict[str, Any]) -> None:
        self._to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._to.flush()


def opened(talk: Talk, workdir: str, methods: list[dict[str, str]]) -> str:
    """Return the id of a new session. methods: ways to authenticate, the first of which is taken if it must."""
    try:
        return str(talk.ask("session/new", cwd=workdir, mcpServers=[])["sessionId"])
    except Failed as failed:
        if failed.args[1].get("code") != AUTH_REQUIRED or not methods:
            raise
    talk.ask("authenticate", methodId=methods[0]["id"])
    return str(talk.ask("session/new", cwd=workdir, mcpServers=[])["sessionId"])


def main(workdir: str, task: str, *argv: str) -> None:
    talk = Talk(list(argv))
    files = {"readTextFile": False, "writeTextFile": False}
    can = {"fs": files, "terminal": False}
    told = talk.ask("initialize", protocolVersion=1, clientCapabilities=can)
    session = opened(talk, workdir, told.get("authMethods") or [])
    said = talk.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": task}])
    print("stop reason:", said.get("stopReason"))
    talk.end()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failed as error:
        sys.exit("the agent's answer to {} is an error: {}".format(*error.args))
