"""What stands in for uv, with a network and without one."""

import subprocess

import pytest
from planted_modules import INSIDE

ROUTE = "Iface Destination\n"
PYTHON = '#!/bin/sh\ncase $1 in */installed.py) [ ! -e {lacks} ] || echo pytest ;; *) echo python "$@" ;; esac\n'


def call(root, command: str, *, online: bool, lacks: bool) -> tuple[int, str]:
    """Call a stand-in where the image has a uv of its own: (its status, what it printed)."""
    for name in ("verifier/bin", "bin"):
        (root / name).mkdir(parents=True)
    (root / "route").write_text(ROUTE + "eth0 00000000\n" * online)
    (root / "lacks").touch() if lacks else None
    text = (INSIDE / "standin.sh").read_text().replace("/proc/net/route", f"{root}/route")
    files = {"bin/python3": PYTHON.format(lacks=root / "lacks")}
    for name in ("uv", "uvx", "curl"):
        files[f"verifier/bin/{name}"] = text.replace("/verifier/", f"{root}/verifier/")
        files[f"bin/{name}"] = f'#!/bin/sh\necho real {name} "$@"; case "$*" in *unreached*) exit 6 ;; esac\n'
    for name, content in files.items():
        (root / name).write_text(content)
        (root / name).chmod(0o755)
    path = f"{root}/verifier/bin:{root}/bin:/usr/bin:/bin"
    ran = subprocess.run(
        command.split(), check=False, capture_output=True, text=True, env={"PATH": path, "HOME": str(root)}, cwd=root
    )
    return ran.returncode, (ran.stdout + ran.stderr).strip()


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("uvx -p 3.13 -w pytest==8.4.1 pytest -q a.py", "python -m pytest -q a.py"),
        ("uv run --with pytest pytest a.py", "python -m pytest a.py"),
        ("uv tool run --from pytest pytest a.py", "python -m pytest a.py"),
        ("uv run -m pytest a.py", "python -m pytest a.py"),
        ("uvx pytest a.py", "python -m pytest a.py"),
    ],
)
@pytest.mark.parametrize("online", [True, False])
def test_what_the_image_has_runs_by_its_python(tmp_path, command, seen, online):
    assert call(tmp_path, command, online=online, lacks=False) == (0, seen)


@pytest.mark.parametrize("command", ["uvx -p 3.13 -w pytest==8.4.1 pytest -q a.py", "uvx pytest a.py"])
def test_what_the_image_lacks_is_its_own_programs_where_there_is_a_network(tmp_path, command):
    assert call(tmp_path / "online", command, online=True, lacks=True) == (0, f"real {command}")
    status, said = call(tmp_path / "offline", command, online=False, lacks=True)
    assert (status, said) == (1, "uvx: there is no network, and the image has no pytest")
    assert (tmp_path / "offline/verifier/lacking").read_text() == f"{said}\n"


@pytest.mark.parametrize(
    ("url", "online", "status", "stood_in"),
    [
        ("https://astral.sh/uv/install.sh", True, 0, False),
        ("https://astral.sh/uv/unreached.sh", True, 0, True),
        ("https://astral.sh/uv/install.sh", False, 0, True),
        ("https://example.org/unreached", True, 6, False),
    ],
)
def test_uvs_installer_is_stood_in_for_where_nothing_fetches_it(tmp_path, url, online, status, stood_in):
    ended, _ = call(tmp_path, f"curl -LsSf {url}", online=online, lacks=False)
    assert (ended, (tmp_path / ".local/bin/env").exists()) == (status, stood_in)


def test_a_project_is_made_where_a_network_may_add_to_it(tmp_path):
    assert call(tmp_path / "online", "uv init", online=True, lacks=True) == (0, "real uv init")
    assert call(tmp_path / "offline", "uv init", online=False, lacks=True) == (0, "")


def test_the_python_of_a_project_reports(tmp_path):
    own = tmp_path / ".venv/bin/python"
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\ncase $1 in -m) echo "$PYTHONPATH" "$@" ;; esac\n')
    own.chmod(0o755)
    seen = call(tmp_path, "uv run pytest a.py", online=True, lacks=False)
    assert seen == (0, f"{tmp_path}/verifier/uv -m pytest a.py")


def test_other_commands_of_uv_are_its_own(tmp_path):
    assert call(tmp_path, "uv --version", online=False, lacks=True) == (0, "real uv --version")
