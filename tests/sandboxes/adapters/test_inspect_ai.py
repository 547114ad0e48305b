"""The provider of sandboxes for inspect_ai, by inspect's own check and in its evaluations."""

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from importlib.metadata import entry_points  # noqa: E402

from inspect_ai import Task, eval_async  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.solver import solver  # noqa: E402
from inspect_ai.util import SandboxEnvironmentSpec, sandbox  # noqa: E402
from inspect_ai.util._sandbox.self_check import self_check  # noqa: E402

from sandboxes.adapters.inspect_ai import AtroposConfig, AtroposSandbox  # noqa: E402

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("default")]


@pytest.fixture
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", [None, "nobody"])
async def test_inspects_own_check_passes_whole(opened, user):
    box = await opened(workdir="/work")
    made = await box.exec(["sh", "-c", "chmod 777 /work; command -v adduser"], user="root")
    box.sandbox._user = user or ""
    found = await self_check(box)
    assert len(found) > 30
    wrong = {name: said for name, said in found.items() if said is not True}
    if not made.stdout:  # this image can't add users as the check does
        wrong.pop("test_exec_as_user", None)
    assert not wrong


async def test_what_it_is_made_of_is_said_by_a_config(opened):
    box = await opened(workdir="/made", user="nobody", memory_mb=128)
    said = await box.exec(["sh", "-c", "pwd; id -un; cat; echo bad >&2; exit 3"], input="typed\n")
    assert (said.success, said.returncode, said.stdout, said.stderr) == (False, 3, "/made\nnobody\ntyped\n", "bad\n")


def test_inspect_finds_it_by_the_packages_entry_point():
    (found,) = [one for one in entry_points(group="inspect_ai") if one.value == "sandboxes.adapters.inspect_ai"]
    assert found.load().AtroposSandbox is AtroposSandbox


@solver
def looks():
    async def solve(state, generate):
        await sandbox().write_file("made", "by the agent")
        state.metadata["said"] = (await sandbox().exec(["cat", "made", "/given"])).stdout
        return state

    return solve


@pytest.mark.timeout(300)
async def test_evaluations_name_it(base_image, tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\nWORKDIR /here\nRUN touch /here/file\n")
    configs = [
        "atropos",
        ("atropos", str(tmp_path / "Dockerfile")),
        SandboxEnvironmentSpec("atropos", AtroposConfig(image=base_image, workdir="/there")),
    ]
    samples = [Sample("go", files={"/given": " and you"})]
    tasks = [Task(samples * 2, looks(), sandbox=one, name=f"t{i}") for i, one in enumerate(configs)]
    for task in tasks:
        (log,) = await eval_async(task, model="mockllm/model", log_dir=str(tmp_path / "logs"), display="none")
        assert log.status == "success", log.error
        assert [sample.metadata["said"] for sample in log.samples] == ["by the agent and you"] * 2
    assert not AtroposSandbox._opened
