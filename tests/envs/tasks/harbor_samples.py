"""A Harbor task directory with what each must have."""

from pathlib import Path


def make_task(root: Path, toml: str = "", name: str = "sample") -> Path:
    directory = root / name
    for folder in ("environment", "tests", "solution"):
        (directory / folder).mkdir(parents=True)
    (directory / "task.toml").write_text(toml)
    (directory / "instruction.md").write_text("Do it.\n")
    (directory / "environment/Dockerfile").write_text("FROM scratch\nWORKDIR /app\n")
    (directory / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (directory / "solution/solve.sh").write_text("true\n")
    return directory
