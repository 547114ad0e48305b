"""What the page costs with very many rollouts: seconds to open, to search and to filter, and its memory.

python benchmarks/page.py DIRECTORY [--rollouts 1000000] [--index]

It makes up a run (about 2 kB a rollout; a real one has some 100 kB, most of it token ids, which are not indexed),
starts the page as `view` does, and asks it. Without --index nothing is indexed before; with it the index is made
first, which is timed.
"""

from __future__ import annotations

import argparse
import random
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import orjson

from envs.records.metrics import Metrics
from envs.running.database import open_database
from envs.runs.index import Index

GROUP = 8
WORDS = [f"word{number}" for number in range(5000)]


def document(number: int, rng: random.Random) -> dict[str, object]:
    """Return a made-up rollout as it is saved."""
    text = " ".join(rng.choices(WORDS, k=40))
    output = " ".join(rng.choices(WORDS, k=60))
    reward = float(rng.random() < 0.4)
    ours = {
        "format": 2,
        "id": f"{number:032x}",
        "task": {"id": f"task-{number // GROUP % 2000}", "tags": ["python"], "band": ""},
        "verdict": {"reward": reward, "explanation": "made up", "tests": {}, "metrics": {}, "seen": {}},
        "reward": {"value": reward, "turn_advantages": [], "explanation": ""},
        "seat": {"group": number // GROUP, "member": number % GROUP, "step": number // 512, "evaluating": False},
        "timings_s": {"open": 1.0, "agent": 20.0, "verifier": 2.0, "total": 23.0},
        "result": {
            "success": True, "final_response": "done", "stop_reason": "answered", "error": None, "counts": {},
            "carries_tokens": True, "drift": None, "metadata": {},
            "messages": [{"role": "user", "content": f"needle{number} {text}"}],
        },
        "segments": [{
            "tokens": [1, 2, 3], "masked_tokens": [-100, 2, 3], "logprobs": [1.0, -0.1, -0.5], "text": "", "segment": 0,
            "turns": 1, "policy_version": number // 512, "thinking_kept": False,
        }],
        "record": [],
    }  # fmt: skip
    step = {
        "step_id": 1, "source": "agent", "message": text,
        "metrics": {"prompt_tokens": 1, "completion_tokens": 2},
        "extra": {"atropos_agent": {
            "index": 0, "segment": 0, "start": 1, "finish_reason": "stop", "engine_s": 15.0, "tools_s": 5.0,
            "content": text,
        }},
        "observation": {"results": [{"content": output, "extra": {"atropos_agent": {
            "is_error": False, "done": False, "malformed": False, "metadata": {},
        }}}]},
    }  # fmt: skip
    return {"schema_version": "ATIF-v1.8", "agent": {}, "steps": [step], "extra": {"atropos_agent": ours}}


def make(directory: Path, count: int) -> None:
    """Write the rollouts, their journal and metrics."""
    rng = random.Random(0)
    directory.mkdir(parents=True)
    place, members = 0, []
    with (directory / "rollouts.jsonl").open("wb") as file:
        for number in range(count):
            line = orjson.dumps(document(number, rng)) + b"\n"
            file.write(line)
            members.append((number // GROUP, number % GROUP, place, len(line), 0, float(rng.random() < 0.4)))
            place += len(line)
    db = open_database(directory / "state.db")
    with db:
        groups = [(number, f"task-{number % 2000}", "delivered", "confirmed") for number in range(count // GROUP)]
        db.execute("BEGIN")
        db.executemany("INSERT INTO groups (number, task, state, reason) VALUES (?, ?, ?, ?)", groups)
        db.executemany("INSERT INTO members VALUES (?, ?, ?, ?, ?, ?)", members)
    db.close()
    (directory / "metrics.json").write_bytes(Metrics(rollouts=count).to_json())


def index(directory: Path) -> None:
    """Make the whole index, and say what it took."""
    begun, cpu = time.perf_counter(), time.process_time()
    made = Index(directory)
    while made.advance(2**24):
        pass
    size = made.path.stat().st_size
    cpu = time.process_time() - cpu
    print(f"indexed in {time.perf_counter() - begun:.0f} s, {cpu:.0f} s of CPU, {size / 1e6:.0f} MB", flush=True)


def memory(pid: int) -> str:
    """Return the most memory that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(maxsplit=1)[1] for line in lines if line.startswith("VmHWM"))


def ask(directory: Path, count: int) -> None:
    """Start the page and time its answers."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "envs.swe", "view", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        base = page.stdout.readline().strip().rstrip("/")
        with httpx.Client(timeout=120) as http:
            http.get(f"{base}/0/").raise_for_status()
            print(f"from the command to the overview: {time.perf_counter() - begun:.2f} s", flush=True)
            for name, path in (
                ("overview", "/0/"), ("newest rollouts", "/0/rollouts"), ("best", "/0/rollouts?order=best"),
                ("page 10,000", "/0/rollouts?page=10000"), ("one rollout", "/0/rollouts/0"), ("groups", "/0/groups"),
                ("a rare word", f"/0/rollouts?q=needle{count // 2}"), ("a common word", "/0/rollouts?q=word7"),
                ("two words", "/0/rollouts?q=word7+word8"), ("a phrase", "/0/rollouts?q=%22word7+word8%22"),
                ("of a task", "/0/rollouts?task=task-7"), ("of a tag that none has", "/0/rollouts?tag=nobody"),
                ("words and filters", "/0/rollouts?q=word7&outcome=solved&step=100-200"),
                ("comparison", "/compare?a=0&b=0"),
            ):  # fmt: skip
                begun = time.perf_counter()
                status = http.get(base + path, follow_redirects=True).status_code
                print(f"  {name:24} {1000 * (time.perf_counter() - begun):7.0f} ms  {status}", flush=True)
        print(f"memory of the page's process: {memory(page.pid)}")
        page.terminate()


def main() -> None:
    """Make up what is not there, and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--index", action="store_true")
    options = parser.parse_args()
    if not options.directory.exists():
        make(options.directory, options.rollouts)
    size = (options.directory / "rollouts.jsonl").stat().st_size
    print(f"{options.rollouts:,} rollouts, {size / 1e9:.2f} GB, SQLite {sqlite3.sqlite_version}", flush=True)
    if options.index:
        index(options.directory)
    ask(options.directory, options.rollouts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory of this process, which indexed: {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
