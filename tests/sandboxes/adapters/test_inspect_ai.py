"""The provider of sandboxes for inspect_ai, by inspect's own checks, and in its evaluations."""

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed: pip install 'atropos-agent[inspect]'")

from importlib.metadata import entry_points

import pytest_asyncio
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironmentSpec, sandbox
from inspect_ai.util._sandbox.self_check import *  # noqa: F403  tests, each of which asks for `sandbox_env`

from sandboxes.adapters.inspect_ai import AtroposConfig, AtroposSandbox

pytestmark = [
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(base_image):
    """What opens a sample's sandbox as inspect does."""
    await AtroposSandbox.task_init("startup", None)
    samples = []

    async def opened(**options):
        config = AtroposConfig(image=base_image, **options)
        samples.append((config, await AtroposSandbox.sample_init("task", config, {})))
        return samples[-1][1]["default"]

    yield opened
    for config, found in samples:
        await AtroposSandbox.sample_cleanup("task", config, found, False)
    await AtroposSandbox.task_cleanup("shutdown", None, True)
    assert not AtroposSandbox._opened


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["root", "nobody"])
async def sandbox_of_a_user(opened, request):
    box = await opened(workdir="/work", user=request.param)
    await box.exec(["chmod", "777", "/work"], user="root")
    return box


ROOT_MAY = {
    "test_read_file_not_allowed",
    "test_write_text_file_without_permissions",
    "test_write_binary_file_without_permissions",
}
"""What root does is refused by no mode of a file, in Docker's containers neither: inspect's runner leaves these out."""


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_env(sandbox_of_a_user, request):
    if request.node.originalname in ROOT_MAY and "root" in request.node.name:
        request.applymarker(pytest.mark.xfail(strict=True, reason="root may"))
    if request.node.originalname == "test_exec_as_user":
        found = await sandbox_of_a_user.exec(["sh", "-c", "command -v adduser"], user="root")
        if not found.success:
            pytest.skip("this image has no adduser, with which inspect makes a user")
    return sandbox_of_a_user


async def test_what_it_is_made_of_is_said_by_a_config(opened):
    box = await opened(workdir="/made", user="nobody", memory_mb=128)
    said = await box.exec(["sh", "-c", "pwd; id -un; cat; echo bad >&2; exit 3"], input="typed\n")
    assert (said.success, said.returncode, said.stdout, said.stderr) == (False, 3, "/made\nnobody\ntyped\n", "bad\n")


@pytest.mark.parametrize("redirected", ["", " >&2"])
async def test_more_output_than_inspect_takes_is_told_as_it_documents(opened, redirected):
    box = await opened()
    with pytest.raises(OutputLimitExceededError, match="limit of 10 MiB was exceeded") as caught:
        await box.exec(["sh", "-c", f"(yes | head -c 11000000){redirected}"])
    assert len(caught.value.truncated_output) == 10 * 2**20


async def test_inspect_finds_it_by_the_packages_entry_point():
    found = [one for one in entry_points(group="inspect_ai") if one.value == "sandboxes.adapters.inspect_ai"]
    if not found:
        pytest.skip("the package is not installed")
    assert found[0].load().AtroposSandbox is AtroposSandbox


@solver
def looks():
    async def solve(state, generate):
        await sandbox().write_file("made", "by the agent")
        state.metadata["said"] = (await sandbox().exec(["cat", "made", "/given"])).stdout
        return state

    return solve


@pytest.mark.parametrize("how", ["name", "dockerfile", "config"])
async def test_evaluations_name_it(base_image, tmp_path, monkeypatch, how):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")  # inspect takes a Dockerfile of the working directory
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\nWORKDIR /here\nRUN touch /here/file\n")
    named = {
        "name": "atropos",
        "dockerfile": ("atropos", str(tmp_path / "Dockerfile")),
        "config": SandboxEnvironmentSpec("atropos", AtroposConfig(image=base_image, workdir="/there")),
    }
    samples = [Sample("go", id=number, files={"/given": " and you"}) for number in (1, 2)]
    task = Task(samples, solver=looks(), sandbox=named[how], name="task")
    (log,) = await eval_async(task, model="mockllm/model", log_dir=str(tmp_path / "logs"))
    assert log.status == "success", log.error
    assert [sample.metadata["said"] for sample in log.samples] == ["by the agent and you"] * 2
