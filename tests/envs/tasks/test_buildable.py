"""Tasks whose images can't be made by the Docker daemon that is there, or have no working directory."""

import pytest
from harbor_samples import make_task

from envs.tasks.buildable import DaemonFacts, fetch_daemon_facts, unusable_reason
from envs.tasks.harbor import load_task
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.images.buildkit import Builder

HERE = "FROM x\nWORKDIR /app\nRUN <<EOF\ntrue\nEOF\n"


def a_task(tmp_path, dockerfile, toml=""):
    directory = make_task(tmp_path, toml)
    if dockerfile is None:
        (directory / "environment/Dockerfile").unlink()
    else:
        (directory / "environment/Dockerfile").write_text(dockerfile)
    return load_task(directory)


@pytest.mark.parametrize(("version", "refused"), [((20, 10), True), ((27, 5), False), (None, False)])
def test_buildkits_syntax_is_refused_with_its_line_where_the_daemon_lacks_it(tmp_path, version, refused):
    said = unusable_reason(a_task(tmp_path, HERE), DaemonFacts(Builder(version), {}), None)
    assert (said is not None) is refused
    if said is not None:
        assert said.startswith("task sample: environment/Dockerfile: line 3: the here-document of RUN needs BuildKit")


def test_a_verifiers_own_image_counts_too(tmp_path):
    directory = make_task(tmp_path, '[verifier]\nenvironment_mode = "separate"\n')
    (directory / "tests/Dockerfile").write_text(HERE)
    said = unusable_reason(load_task(directory), DaemonFacts(Builder((20, 10)), {}), None)
    assert said is not None and said.startswith("task sample: tests/Dockerfile: line 3")


@pytest.mark.parametrize(
    ("dockerfile", "toml", "base_image", "refused"),
    [
        ("FROM none\n", "", None, "none"),
        ("FROM slash\n", "", None, "slash"),
        ("FROM has\n", "", None, None),
        ("FROM unknown\n", "", None, None),
        ("FROM has\n", "", "none", "none"),
        ("FROM none\nWORKDIR /app\n", "", None, None),
        ("FROM none\n", '[environment]\nworkdir = "/app"\n', None, None),
        (None, '[environment]\ndocker_image = "none"\n', None, "none"),
        (None, '[environment]\ndocker_image = "has"\n', None, None),
        ("FROM none\n", '[metadata]\ngraded_paths = ["/root/out"]\n', None, None),
    ],
)
def test_a_working_directory_that_nothing_names_is_refused_where_that_is_known(
    tmp_path, dockerfile, toml, base_image, refused
):
    known = DaemonFacts(Builder((27, 5)), {"none": "", "slash": "/", "has": "/srv"})
    said = unusable_reason(a_task(tmp_path, dockerfile, toml), known, base_image)
    assert (said is None) == (refused is None)
    if said is not None:
        assert f"nor has {refused} one; name the source tree" in said


@pytest.mark.docker
async def test_a_real_daemon_knows_its_version_and_its_images(base_image, tmp_path):
    task = a_task(tmp_path, f"FROM {base_image}\n")
    async with connect() as docker:
        known = await fetch_daemon_facts(docker, [task], None)
    assert known.builder.version is None or known.builder.version >= (18, 9)
    assert known.workdirs[base_image] in ("", "/")
    assert "its working directory is /" in (unusable_reason(task, known, None) or "")
