"""Preparing the verifier's sandbox: the tests among decoys, and what reports them."""

from hashlib import sha256

import pytest
from verifier_samples import REWARD, FailingBackend, image_of, survives, task, verdict_after

from envs.judging.changes import Changes
from envs.judging.prepare import command_of
from envs.judging.verifier import judge
from envs.types import Hidden, InfraError, Task


@pytest.mark.docker
async def test_without_python_what_test_sh_may_run_runs_as_ever(docker_backend, tmp_path):
    image = await docker_backend.ensure_image(None, image_of(tmp_path, False))
    script = f"""set -e
    test "$(timeout 5 id -u)-$(echo id -u | xargs env)-$(./whoami)" = 0-0-0
    chmod +x /tests/helper && timeout 5 /tests/helper
    {REWARD.format(1)}"""
    sample = task(tmp_path, script, {"helper": "#!/bin/sh\ntest $(id -u) = 0\n"})
    command = "printf '#!/bin/sh\\nid -u\\n' > whoami; chmod +x whoami"
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.solved, verdict.explanation


@pytest.mark.docker
async def test_tests_lie_among_decoys_with_their_data_and_what_is_no_python_as_it_is(docker_backend, tmp_path):
    script = (
        f"cat /tests/test_a.py /tests/data/want.txt /tests/test_old.py; sha256sum -c /tests/sums; {REWARD.format(1)}"
    )
    files = {
        "test_sum.py": (text := "def test_a():\n    assert f(3) == 7431\n"),
        "sums": f"{sha256(text.encode()).hexdigest()}  /tests/test_sum.py\n",
        "data/want.txt": "wanted\n",
        "test_old.py": "print 'x'\n",
        "test_a.py": "import pytest\n\ndef test_a():  # 7431\n    assert f(3) == 7431\n",
    }
    image = await docker_backend.ensure_image(None, image_of(tmp_path, True))
    verdict = await judge(docker_backend, task(tmp_path, script, files), image, Changes())
    shown = verdict.explanation
    assert "wanted\nprint 'x'\n/tests/test_sum.py: OK\n" in shown
    assert (
        "assert [__verifier__.equal(1000000000,(f(3)),__verifier__.want(1000000000,(" in shown and "# 7431" not in shown
    )


@pytest.mark.docker
async def test_a_virtual_environment_that_the_agent_made_reports_its_tests(docker_backend, base_image, tmp_path):
    run = "export PYTHONPATH=/app; .venv/bin/python -m pytest -q /tests/test_a.py"
    test = "from solution import f\ndef test_a():\n    assert f(3) == 6\n"
    sample = task(tmp_path, f"{run} && {REWARD.format(1)}", {"test_a.py": test}, watched=True)
    make = "python3 -m venv --system-site-packages --without-pip .venv; echo 'def f(x): return 2 * x' > solution.py"
    assert (await verdict_after(docker_backend, base_image, sample, make)).solved


@pytest.mark.docker
async def test_an_image_may_have_a_folder_of_the_verifiers_name(docker_backend, tmp_path):
    folder = image_of(tmp_path, True, "RUN mkdir -p /verifier/bin && echo 5 > /verifier/bin/want")
    test = "def test_a():\n    assert open('/verifier/bin/want').read() == '5\\n'\n"
    run = f"cat /verifier/bin/want && pytest -q /tests/test_a.py && {REWARD.format(1)}"
    sample = task(tmp_path, run, {"test_a.py": test})
    image = await docker_backend.ensure_image(None, folder)
    verdict = await judge(docker_backend, sample, image, Changes())
    assert (verdict.solved, len(verdict.tests)) == (True, 1), verdict.explanation


async def test_a_task_without_tests_is_refused(tmp_path):
    sample = Task("sample", "Do it.", Hidden())
    with pytest.raises(InfraError, match="has no tests"):
        await judge(FailingBackend(survives(), survives()), sample, "image", Changes())


UVX = """\
#!/bin/sh
[ "$1 $2" = "-w cowsay" ] && shift 3 && exec /srv/own/bin/python -m pytest "$@"
"""
ENV = 'case :$PATH: in *:$HOME/.local/bin:*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac\n'


@pytest.mark.docker
async def test_an_environment_that_uv_makes_with_a_network_reports_its_tests(docker_backend, tmp_path):
    own = (
        "python3 -m venv --without-pip /srv/own && cp -r /usr/lib/python3/dist-packages/* /srv/own/lib/*/site-packages/"
    )
    folder = image_of(tmp_path, True, "COPY bin /root/.local/bin", f"RUN {own}")
    (folder / "bin").mkdir()
    for name, text in (("uvx", UVX), ("env", ENV)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    run = '. "$HOME/.local/bin/env" && uvx -w cowsay pytest -q /tests/test_a.py'
    test = "def test_a():\n    assert open('/app/a').read() == '6'\n"
    sample = task(tmp_path, f"{run} && {REWARD.format(1)}", {"test_a.py": test}, watched=True, network=True)
    image = await docker_backend.ensure_image(None, folder)
    for answer in (6, 7):
        verdict = await verdict_after(docker_backend, image, sample, f"printf {answer} > a")
        assert (verdict.reward, len(verdict.tests)) == (float(answer == 6), 1), verdict.explanation


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("echo 1", ["bash"]),
        ("#!/bin/bash", ["bash"]),
        ("#! /usr/bin/env bash", ["bash"]),
        ("#!/bin/bash -e", ["/bin/bash", "-e"]),
        ("#!/bin/sh", ["/bin/sh"]),
        ("#!/usr/bin/env python3", ["/usr/bin/env", "python3"]),
        ("#!/usr/bin/env -S uv run --script ", ["/usr/bin/env", "-S uv run --script"]),
        ("#!", ["bash"]),
    ],
)
def test_a_script_is_run_by_the_program_in_its_first_line(line, command):
    assert command_of("/tests/test.sh", f"{line}\necho 2\n".encode()) == [*command, "/tests/test.sh"]
