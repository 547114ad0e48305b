"""Preparing the verifier's sandbox: wrappers stand in the way of whatever test.sh starts."""

import re

import pytest
from verifier_samples import REWARD, FailingBackend, image_of, survives, task, verdict_after

from envs.judging.changes import Changes
from envs.judging.verifier import judge
from envs.types import Hidden, InfraError, Task


@pytest.mark.docker
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
@pytest.mark.parametrize(
    "move", ["", "mv /opt/lang/bin /opt/lang/old && mkdir /opt/lang/bin && "], ids=["into", "anew"]
)
async def test_what_is_judged_cannot_put_programs_in_roots_path(docker_backend, tmp_path, move, python):
    # As in images of Go and Rust, where anyone may write to the folder of their programs.
    remove = "" if python else " && rm -rf /usr/bin/python3* /usr/lib/python3*"
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nENV PATH=/opt/lang/bin:$PATH\nWORKDIR /app\n"
        f"RUN mkdir -p /opt/lang/bin && chmod -R 777 /opt/lang{remove}\n"
    )
    image = await docker_backend.ensure_image(None, tmp_path / "image")
    sample = task(tmp_path, f"judged sh ./run; {REWARD.format(0)}; judged true; cat /dev/null")
    plant = '#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nexec /usr/bin/${0##*/} "$@"\n'
    names = "mkdir cat tar env readlink find"
    run = (
        f"{move}for name in {names}; do printf '%s' '{plant}' > /opt/lang/bin/$name; chmod +x /opt/lang/bin/$name; done"
    )
    command = f"cat > run <<'E'\n{run}\nE\n"
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.reward == 0.0


WAYS = r"""
./p; timeout 5 ./p; env ./p; env -i ./p; sh -c ./p; bash -c ./p; env -i sh -c ./p; nice ./p; nohup ./p; eval ./p
echo | xargs ./p; find . -name p -exec {} ';'; find . -name p -execdir {} ';'; . ./p; source ./p; (PATH=.:$PATH; p)
cp p /tmp/q; /tmp/q; timeout 5 /tmp/q; cat p > /tmp/r; chmod +x /tmp/r; env /tmp/r; /bin/sh ./p; timeout 5 sh ./p
/bin/sh -c 'timeout 5 env FOO=1 ./p'; x=$(./p); awk 'BEGIN { system("./p") }'; coproc ./p; wait; ./p & wait
command ./p; tool; timeout 5 tool; cat /dev/null; tar --version; bash -e ./p; sh -eu ./p; env bash -o pipefail ./p
"""


@pytest.mark.long(12)
@pytest.mark.docker
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
async def test_in_whatever_way_test_sh_runs_judged_code_it_is_not_root(docker_backend, tmp_path, python):
    folder = image_of(tmp_path, python, "ENV PATH=/app/bin:$PATH")
    image = await docker_backend.ensure_image(None, folder)
    said = "sort /tmp/said | uniq -c | sed 's/^ */said /'"
    sample = task(tmp_path, f": > /tmp/said; chmod 666 /tmp/said\n{WAYS}\n{said}\nexec ./p")
    program = "#!/bin/sh\n/usr/bin/id -u >> /tmp/said\necho 1 > /logs/verifier/reward.txt\n"
    planted = "; ".join(f"cp p bin/{name}" for name in ("tool", "cat", "tar", "env", "timeout", "sh", "test", "mkdir"))
    command = f"printf '%s' '{program}' > p; chmod +x p; mkdir -m 777 bin; {planted}; chmod 777 ."
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.reward == 0.0
    ran = re.findall("^said (.*)", verdict.explanation, re.MULTILINE)
    assert ran == ["30 65534"], "each of the ways, but for those by which the shell itself would run it"


@pytest.mark.docker
async def test_a_grader_is_not_run_by_a_python_of_the_working_directory(docker_backend, tmp_path):
    folder = image_of(tmp_path, True, "RUN python3 -m venv --without-pip .venv")
    image = await docker_backend.ensure_image(None, folder)
    sample = task(tmp_path, "source .venv/bin/activate; python /tests/grade.py; .venv/bin/python /tests/grade.py")
    (tmp_path / "tests/grade.py").write_text("import sys; print(sys.prefix)  # /logs/verifier\n")
    plant = "import os; os.system('echo 1 > /logs/verifier/reward.txt')"
    command = f'echo "{plant}" > $(echo .venv/lib/*/site-packages)/x.pth'
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert (verdict.reward, verdict.explanation.split("\n")[1:]) == (0.0, ["/usr", "/usr", ""])


@pytest.mark.docker
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
async def test_what_test_sh_may_run_runs_as_ever(docker_backend, tmp_path, python):
    folder = image_of(tmp_path, python, "RUN mkdir -p .venv/bin && echo exit 9 > .venv/bin/activate")
    image = await docker_backend.ensure_image(None, folder)
    script = f"""set -e
    source .venv/bin/activate && test "$VIRTUAL_ENV" = "$PWD/.venv"
    printf 'A=5\\n' > /tmp/settings && . /tmp/settings && test $A = 5
    test "$(timeout 5 id -u)-$(env B=1 nice id -u)-$(echo id -u | xargs env)" = 0-0-0
    ended=0; timeout 0.5 ./loop > /tmp/said || ended=$?; test $ended = 124
    test "$(cat /tmp/said)" = begun
    timeout 5 sh -eu /tests/helper && timeout -k 1 5 sh -c 'test $(id -u) = 0'
    timeout 5 cat /tests/helper ./loop > /dev/null
    chmod +x /tests/helper && timeout 5 /tests/helper && test "$(./whoami)" = 65534
    {REWARD.format(1)}"""
    sample = task(tmp_path, script)
    (tmp_path / "tests/helper").write_text("#!/bin/sh\ntest $(id -u) = 0\n")
    command = (
        "printf '#!/bin/sh\\necho begun\\nwhile :; do sleep 0.1; done\\n' > loop; "
        "printf '#!/bin/sh\\nid -u\\n' > whoami; chmod +x loop whoami"
    )
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.solved, verdict.explanation


@pytest.mark.docker
async def test_an_image_may_have_a_user_of_its_own(docker_backend, tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nWORKDIR /src\nRUN echo 1 > old && chown -R 1234 /src\nUSER 1234\n"
    )
    image = await docker_backend.ensure_image(None, tmp_path / "image")
    sample = task(tmp_path, "id -u; judged id -u; ls; " + REWARD.format(1), workdir=None)
    verdict = await verdict_after(docker_backend, image, sample, "id -u > new; rm old")
    assert (verdict.reward, verdict.explanation.split("\n", 1)[1]) == (1.0, "0\n1234\nnew\n")


async def test_a_task_without_tests_is_refused(tmp_path):
    sample = Task("sample", "Do it.", Hidden())
    with pytest.raises(InfraError, match="has no tests"):
        await judge(FailingBackend(survives(), survives()), sample, "image", Changes())
