"""What a call of pip or uv asks for."""

import pytest
from planted_modules import inside

installed = inside("installed")


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ("install pytest==8.4.1 -q", ["pytest"]),
        ("pip install --index-url https://x pytest Some_Package[extra]>=1", ["pytest", "some-package"]),
        ("install --with a,b==1 c", ["a", "b", "c"]),
        ("install -e .", None),
        ("install ./folder", None),
        ("install git+https://x/y", None),
    ],
)
def test_the_packages_are_named_without_their_versions(args, names):
    assert installed.wanted(args.split()) == names


def test_a_file_of_requirements_names_packages_too(tmp_path):
    (tmp_path / "r.txt").write_text("pytest>=7  # for tests\n\nhypothesis\n")
    assert installed.wanted(["install", "-r", str(tmp_path / "r.txt")]) == ["pytest", "hypothesis"]
    assert installed.wanted(["install", "-r", str(tmp_path / "none")]) is None


def test_what_is_installed_is_known_by_its_metadata(tmp_path, monkeypatch):
    (tmp_path / "Some_Package-1.0.dist-info").mkdir()
    (tmp_path / "other.egg-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed.installed() == {"some-package", "other"}
