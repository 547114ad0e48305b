"""The client of pi's RPC mode, with programs that speak as pi does."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from envs.agents import pi

CLIENT = Path(pi.__file__).with_name("pi_client.mjs")
ENDS = {"type": "agent_end", "messages": []}
BEGINS = {"type": "agent_start"}
SUMS_UP = [{"type": "compaction_start", "reason": "overflow"}, {"type": "compaction_end", "willRetry": True}]
TOO_LONG = {"type": "message_end", "message": {"role": "assistant", "errorMessage": "prompt is too long"}}
ANSWERS = {"type": "message_end", "message": {"role": "assistant", "content": "a line\u2028and another"}}

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def run(tmp_path, *said):
    """Let a program say so, events and pauses in seconds, when it has its task. Returns its end and its input.

    The program fails if its input ends before it has said all."""
    lines = [
        f"sleep {one}" if isinstance(one, float) else f"printf '%s\\n' '{json.dumps(one, ensure_ascii=False)}'"
        for one in said
    ]
    reads = 'read -r task; echo "$task" >heard; exec 3<&0; (cat <&3; touch ended) &'
    return end_of(tmp_path, reads, *lines, "[ -e ended ] && exit 9; wait"), json.loads((tmp_path / "heard").read_text())


def end_of(tmp_path, *lines):
    program = tmp_path / "pi"
    program.write_text("\n".join(["#!/bin/sh", *lines]))
    program.chmod(0o755)
    command = ["node", CLIENT, "Do it.", program]
    return subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60)


def test_pi_gets_its_task_and_ends_when_it_has_answered(tmp_path):
    ended, heard = run(tmp_path, BEGINS, ANSWERS, ENDS)
    assert heard == {"type": "prompt", "message": "Do it."}
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_window_is_no_end_if_pi_goes_on_from_a_summary(tmp_path):
    goes_on = [BEGINS, 0.7, {"type": "tool_execution_start"}, ANSWERS, ENDS]
    ended, _ = run(tmp_path, BEGINS, TOO_LONG, ENDS, *SUMS_UP, 0.2, *goes_on)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_failed_summary_is_an_error(tmp_path):
    fails = {"type": "compaction_end", "willRetry": False, "errorMessage": "no room"}
    ended, _ = run(tmp_path, BEGINS, TOO_LONG, ENDS, SUMS_UP[0], fails)
    assert (ended.returncode, ended.stderr) == (1, "no room\nprompt is too long\n")


def test_a_refused_task_is_an_error(tmp_path):
    ended, _ = run(tmp_path, {"type": "response", "success": False, "error": "no key"})
    assert (ended.returncode, ended.stderr) == (1, "no key\n")


def test_the_end_of_pi_is_the_end_of_its_client(tmp_path):
    assert end_of(tmp_path, "exit 3").returncode == 3
