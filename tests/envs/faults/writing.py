"""Tasks of writing a number into a file, and the policy that does it. Half of them are judged by pytest."""

import re


def works_and_says_so(prompt):
    """Does what the task says by one command."""
    if "<tool_response>" in prompt.rsplit("Write the number", 1)[1]:
        return "done"
    number = re.findall(r"Write the number (\d+) into", prompt)[-1]
    command = f"sleep 0.3; echo {number} > answer"
    return f'<tool_call>{{"name": "terminal", "arguments": {{"command": "{command}"}}}}</tool_call>'


def write_tasks(folder):
    for number in range(4):
        task = folder / f"write-{number}"
        for part in ("environment", "tests", "solution"):
            (task / part).mkdir(parents=True)
        (task / "instruction.md").write_text(f"Write the number {number} into the file answer.\n")
        (task / "environment/Dockerfile").write_text("FROM atropos-agent/base:debian12\nWORKDIR /app\n")
        (task / "solution/solve.sh").write_text(f"echo {number} > answer\n")
        test = f"grep -qx {number} answer"
        if number % 2:  # watched
            test = "python3 -m pytest -q /tests/test_answer.py"
            (task / "tests/test_answer.py").write_text(
                f"from pathlib import Path\n\n\ndef test_answer():\n"
                f'    assert Path("/app/answer").read_text() == "{number}\\n"\n'
            )
        (task / "tests/test.sh").write_text(
            f"F=/logs/verifier/reward.txt\nsleep 0.5; {test} && echo 1 > $F || echo 0 > $F\n"
        )
        (task / "task.toml").write_text(
            'schema_version = "1.4"\n[agent]\ntimeout_sec = 20\n[verifier]\ntimeout_sec = 60\n'
            '[environment]\nnetwork_mode = "no-network"\ncpus = 1\nmemory_mb = 256\n'
        )
