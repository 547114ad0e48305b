"""Which code is the task's own."""

import os

import ours
import processes
import pytest

SCRIPT = """\
bash -c 'cd /app && true'
timeout 5 bash -ec "cd $PLACE; python3 -m pytest \\"${FILE}\\" \\$HOME $(dirname x)"
python3 - "$1" <<'EOF'
import json
print("$1")
EOF
cat <<-END | sh
\techo $score
\tEND
sh <<< "id -u"
echo 'exit 3' | sh
"""


@pytest.fixture(autouse=True)
def tests(tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "TESTS", str(tmp_path))
    monkeypatch.setattr(processes, "HERE", str(tmp_path))
    (tmp_path / "test.sh").write_text(SCRIPT)
    (tmp_path / "late.sh").write_text("bash -c 'echo late'\n")
    (tmp_path / "since").touch()
    os.utime(tmp_path / "late.sh")  # after it
    for name in ("stamp", "test.sh"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(1, 10**18))


@pytest.mark.parametrize(
    "kind, code",
    [
        ("argument", "cd /app && true"),
        ("argument", 'cd /app; python3 -m pytest "/tests/a.py" $HOME .'),
        ("stdin", 'import json\nprint("$1")\n'),
        ("stdin", "echo 0.5\n"),
        ("stdin", "id -u\n"),
        ("stdin", "exit 3\n"),
    ],
)
def test_code_that_stands_in_a_script_of_the_tests_is_ours(kind, code):
    assert ours.is_ours(code, kind)


@pytest.mark.parametrize(
    "kind, code",
    [
        ("argument", "true"),
        ("argument", "echo late"),
        ("argument", "echo 1 > /logs/verifier/reward.txt"),
        ("argument", 'cd /app; evil; python3 -m pytest "/tests/a.py" $HOME .'),
        ("argument", 'cd x; python3 -m pytest "$(evil)" $HOME .'),
        ("stdin", 'import json\nprint("/app")\n'),
        ("stdin", "echo 0.5; evil\n"),
        ("stdin", "import json\n"),
        ("stdin", ""),
    ],
)
def test_other_code_is_not_whatever_it_holds_of_them(kind, code):
    assert not ours.is_ours(code, kind)


EVALUATED = """\
# what isn't paired doesn't matter
check "a count" "[ \\"$(cat out)\\" -eq 3 ]"
run="pytest $file"; run="$run && test -f 'a b'"
words=("ls" "-la" "$folder")
trap "echo $score > /logs/verifier/reward.txt" EXIT
"""


@pytest.mark.parametrize(
    "code, is_it",
    [
        ('[ "3" -eq 3 ]', True),
        ("pytest /tests/a.py && test -f 'a b'", True),
        ("ls -la /app", True),
        ("echo 1 > /logs/verifier/reward.txt", True),
        ('[ "3; evil" -eq 3 ]', False),
        ('[ "$(evil)" -eq 3 ]', False),
        ("pytest /tests/a.py && evil", False),
        ("ls -la; evil", False),
        ("ls -la /logs/verifier/reward.txt", False),
        ("evil 3", False),
        ("cd /logs/verifier\nls -la", False),
    ],
)
def test_what_a_shell_evaluates_is_put_together_of_what_is_written(tmp_path, code, is_it):
    (tmp_path / "test.sh").write_text(EVALUATED)
    os.utime(tmp_path / "test.sh", ns=(1, 10**18))
    assert ours.is_ours(code, "evaluated") == is_it
