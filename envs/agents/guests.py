"""Foreign agents in sandboxes: the needs of their sandbox, and one of them at work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from atropos_agent.types import AgentResult, StopReason
from envs.agents.entrance import Entrance
from envs.agents.facts import HOME, PACK, ForeignAgent, Place
from envs.agents.packs import pack_of
from envs.agents.recipes import Platform
from envs.agents.servers import run_servers
from envs.agents.watching import WatchedSession
from envs.types import Failure, InfraError
from sandboxes.base import Backend, Door, ExecResult, Sandbox, SandboxEnded, SandboxSpec
from sandboxes.shielding import await_shared
from tools.mcp.servers import MCPServer

logger = logging.getLogger(__name__)

DOOR = "gateway"
_LOOK = """
uname -m
if ls /lib/ld-musl-* >/dev/null 2>&1; then echo musl; else echo glibc; fi
python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
"""
_LOOK_S = 60.0
_CPUS = {"x86_64": "x64", "aarch64": "arm64"}
_DONE_S = 10.0
"""How long an agent may live on after its last reply."""
_PREPARES_S = 120.0
"""The same after a title: on a busy machine it takes long to ask for a first reply with its tools."""
_BEGINS_S, _SILENT_S = 60.0, 300.0
"""After how many silent seconds of an agent the log says so: before its first request, and later, when it may have
commands that take long."""
_TICK_S = 0.25
_WINDOW = 200_000
"""Tokens reported to an agent without a budget."""
_REPLY = 4096
"""The same of one reply."""
_ENDING_S = 10.0
_KEPT = 64 << 10
"""Bytes of an agent's output, errors with it."""
_ARGUMENT = 1 << 17
"""Bytes that Linux takes for no argument of a program."""
_SIGNALS = 128
"""Above it a status is a signal's."""
_BEGIN = f'mkdir -p {HOME} && echo $$ >{HOME}/pid && exec "$@"'
_END = f"""
p=$(cat {HOME}/pid); kill -TERM "$p"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do kill -0 "$p" || exit 0; sleep 0.1; done
kill -KILL "$p"
"""


class Guests:
    """A foreign agent in the sandboxes of a run."""

    def __init__(self, agent: ForeignAgent, backend: Backend) -> None:
        self.agent = agent
        self._backend = backend
        self._packs: dict[str, asyncio.Task[tuple[Platform, Path | None]]] = {}

    async def prepare(self, spec: SandboxSpec) -> Guest:
        """Make the agent ready for a sandbox of its own. Raises InfraError if it can't run there, SandboxError."""
        finding = self._packs.get(spec.image)
        if finding is None or (finding.done() and (finding.cancelled() or finding.exception() is not None)):
            finding = self._packs[spec.image] = asyncio.create_task(self._find(spec))
        platform, pack = await await_shared(finding)
        return Guest(self.agent, platform, pack, spec)

    async def _find(self, spec: SandboxSpec) -> tuple[Platform, Path | None]:
        """Find out the image's platform, and install the agent's packages."""
        async with self._backend.open(spec) as sandbox:
            looked = await sandbox.exec(_LOOK, timeout=_LOOK_S)
        machine, libc, python = (*looked.output.split(), "", "", "")[:3]
        if machine not in _CPUS:
            raise InfraError(Failure.TASK, f"agent {self.agent.name}: none is made for the processor {machine!r}")
        platform = Platform(_CPUS[machine], libc, python)
        recipe = self.agent.recipe
        pack = await pack_of(self.agent.name, recipe, platform) if recipe.npm or recipe.pypi else None
        return platform, pack


class Guest:
    """A foreign agent for one sandbox. spec: of that sandbox, with the agent's pack and the door."""

    def __init__(self, agent: ForeignAgent, platform: Platform, pack: Path | None, spec: SandboxSpec) -> None:
        self._agent = agent
        self._platform = platform
        self._entrance = Entrance()
        doors: dict[str, Door] = {**spec.doors, DOOR: self._entrance}
        mounts = {} if pack is None else {PACK: pack}
        self.spec = replace(spec, doors=doors, mounts={**spec.mounts, **mounts})

    async def work(
        self, session: WatchedSession, sandbox: Sandbox, instruction: str, servers: Sequence[MCPServer] = ()
    ) -> AgentResult:
        """Let the agent work until it is done, or a budget is over. Raises InfraError if it did not even begin,
        AgentError for the session's failures."""
        budgets = session.config
        place = Place(
            # An argument that begins with a dash, as a list does in Markdown, is an option to most programs.
            f"\n{instruction}" if instruction.startswith("-") else instruction,
            f"http://{sandbox.door(DOOR)}",
            sandbox.workdir,
            self._platform.cpu,
            self._platform.musl,
            budgets.max_total_tokens or _WINDOW,
            budgets.max_tokens or _REPLY,
            budgets.max_steps,
            servers,
        )
        start = self._agent.start(place)
        if any(len(word.encode("utf-8", "replace")) >= _ARGUMENT for word in start.argv):
            raise InfraError(
                Failure.TASK,
                f"agent {self._agent.name} is given its task as an argument, which must be shorter than {_ARGUMENT} "
                "bytes: shorten the instruction, or put a part of it into a file of the image",
            )
        for path, text in start.files.items():
            await sandbox.write_file(path, text.encode())
        began = time.monotonic()
        session.by_text = self._agent.shell is None
        self._entrance.session = session
        try:
            async with run_servers(sandbox, servers):
                ran = await self._run(session, sandbox, start.argv, {**_proxy_overrides(self.spec), **start.env})
        finally:
            self._entrance.session = None
        useless = ""
        if not (session.requests or session.refused):
            waited = f"asked for nothing in all its time, {time.monotonic() - began:.0f} s"
            useless = "did not start" if session.remaining_s() > 0 else waited
        elif session.is_only_preparing and (ran is None or ran.exit_code):
            useless = "asked for no reply with its tools"
        if useless:
            what = f"agent {self._agent.name} {useless}: {_describe_exit(ran)}"
            # One that ends by itself does so again: its program is missing, or an option is wrong.
            by_itself = ran is not None and ran.exit_code < _SIGNALS and session.remaining_s() > 0
            raise InfraError(Failure.SANDBOX, what) from (ValueError(what) if by_itself else None)
        return await self._result(session, ran, (session.first_s or began) - began)

    async def _run(
        self, session: WatchedSession, sandbox: Sandbox, argv: Sequence[str], env: dict[str, str]
    ) -> ExecResult | None:
        """Run it to its end, or end it. Returns its result, None if unknown."""
        # Its time is the session's, which grows by what slow and failing inference servers have cost.
        command = ["/bin/sh", "-c", _BEGIN, "sh", *argv]
        running = asyncio.create_task(sandbox.exec(command, env=env, timeout=float("inf"), max_output=_KEPT))
        try:
            began, silence_logged = time.monotonic(), False
            while not running.done() and session.remaining_s() > 0:
                if session.idle_s() >= (_PREPARES_S if session.is_only_preparing else _DONE_S):
                    break
                await asyncio.wait({running}, timeout=_TICK_S)
                silence_logged = silence_logged or self._log_silence(session, session.silent_s(began))
            if not running.done():
                await sandbox.exec(_END, timeout=_ENDING_S)
                await asyncio.wait({running}, timeout=_ENDING_S)
            return running.result() if running.done() else None
        except SandboxEnded as ended:  # by what ran in it: that is the agent's outcome
            return ExecResult(137, str(ended).encode())
        finally:
            running.cancel()
            await asyncio.wait({running})

    def _log_silence(self, session: WatchedSession, silent_s: float) -> bool:
        """Log that the agent asks for nothing, if this has lasted long. Returns whether it has."""
        if silent_s < (_SILENT_S if session.requests else _BEGINS_S):
            return False
        what = "has asked for nothing" if session.requests else "has not begun to ask"
        left = session.remaining_s()
        logger.warning("agent %s %s for %.0f s; it has %.0f s left", self._agent.name, what, silent_s, left)
        return True

    async def _result(self, session: WatchedSession, ran: ExecResult | None, start_s: float) -> AgentResult:
        result = await session.result(StopReason.TIME if session.remaining_s() <= 0 else None)
        reason, error = result.stop_reason, None
        if reason is StopReason.ANSWERED and session.last is not None and session.last.sampled is not None:
            answer = session.last.sampled.answer
            submits, finishes = self._agent.submits, self._agent.finishes
            if any((submits and submits in call.text) or (finishes == call.name) for call in answer.calls):
                reason = StopReason.SUBMITTED
            elif not (submits or answer.calls or answer.finish_reason == "length"):
                pass
            elif len(result.steps) >= session.config.max_steps:
                # It knows how many turns it has, and requests no more.
                reason = StopReason.MAX_STEPS
            else:
                reason = StopReason.BROKE_OFF
                code = None if ran is None else ran.exit_code
                meant = self._agent.failures.get(code or 0, "it stopped in the middle of its work")
                error = f"{self._agent.name} ended with status {code}: {meant}"
        packages = self._agent.recipe.packages_for(self._platform, self._agent.name)
        about = {
            "name": self._agent.name,
            "package": next(iter(packages), "in the image"),
            "exit_code": None if ran is None else ran.exit_code,
            "output": "" if ran is None else ran.output,
            "start_s": round(start_s, 3),
            "requests": session.requests,
        }
        return replace(
            result,
            stop_reason=reason,
            success=reason in (StopReason.ANSWERED, StopReason.SUBMITTED),
            error=error or result.error,
            metadata={**result.metadata, "agent": about},
        )


def _proxy_overrides(spec: SandboxSpec) -> dict[str, str]:
    """Return variables to keep an image's own proxy, out of reach here, from the way to the door."""
    if spec.limits.network or spec.limits.allowed_hosts:
        return {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {name: "" for upper in names for name in (upper, upper.lower())}


def _describe_exit(ran: ExecResult | None) -> str:
    if ran is None:
        return "it said nothing"
    return f"it ended with status {ran.exit_code} and said: {ran.output.strip()[-2000:]}"
