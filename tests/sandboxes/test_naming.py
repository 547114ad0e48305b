"""Objects that a user chooses by name or by dotted path."""

import contextlib
import io
import json
import sys

import pytest

from sandboxes import naming
from sandboxes.naming import lazy_import, resolve


def test_a_known_name_comes_before_a_path():
    assert resolve("--env.x", "one", {"one": 1}) == 1


def test_a_module_that_is_no_python_is_named_with_the_line(tmp_path, monkeypatch):
    (tmp_path / "no_python.py").write_text("x = 1\ndef (:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"x no_python:f: no_python can't be imported: .*no_python.py, line 2\)$"):
        resolve("--env.x", "no_python:f", {})


def test_a_module_that_fails_as_it_is_imported_is_named_with_the_line(tmp_path, monkeypatch):
    (tmp_path / "fails.py").write_text("x = 1\ny = x.real.no_such\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"x fails:f: fails can't be imported: AttributeError: .*fails.py, line 2\)$"):
        resolve("--env.x", "fails:f", {})


def test_a_script_that_ends_the_process_as_it_is_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"script can't be imported: SystemExit: 0 \(.*script.py, line 2\)$"):
        resolve("--env.x", "script:f", {})


def test_a_dotted_path_may_lead_into_a_class():
    assert resolve("--env.x", "json:JSONDecoder.decode", {}) is json.JSONDecoder.decode


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("two", r"--env.x two: there is none of that name; choose one, or .* package.module:name"),
        ("no_such_module:x", r"no_such_module can't be imported: .*PYTHONPATH"),
        ("folder/products.py:x", r"a module is named without its folder and ending: products:x"),
        ("json:nothing", r"json has no nothing"),
        (":x", r"there is none of that name"),
    ],
)
def test_what_is_not_there_is_refused_with_the_option_and_the_remedy(value, expected):
    with pytest.raises(ValueError, match=expected):
        resolve("--env.x", value, {"one": 1})


def test_a_name_of_ours_reads_no_installed_packages(monkeypatch):
    monkeypatch.delattr(naming, "entry_points")
    assert resolve("--env.x", "loads", {"loads": "json:loads"}, "atropos_agent.tools") is json.loads


def test_parts_of_installed_packages_are_found_by_their_entry_points(tmp_path, monkeypatch):
    installed = tmp_path / "parts-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: parts\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[atropos_agent.tools]\nload = json:loads\none = json:dumps\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("--env.x", "load", {}, "atropos_agent.tools") is json.loads
    assert resolve("--env.x", "one", {"one": 1}, "atropos_agent.tools") == 1, "ours come first"
    with pytest.raises(ValueError, match=r"did you mean load\?; choose load, one"):
        resolve("--env.x", "laod", {}, "atropos_agent.tools")


def test_a_name_that_several_packages_offer_is_refused_with_their_paths(tmp_path, monkeypatch):
    for name, path in (("one", "json:loads"), ("two", "json:dumps [more]"), ("three", "json:loads")):
        installed = tmp_path / f"{name}-1.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        lines = f"load = {path}\nown_{name} = {path}\nmodule = json\n"
        (installed / "entry_points.txt").write_text(f"[atropos_agent.tools]\n{lines}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"--env.x load: several .* offer it; choose json:dumps or json:loads$"):
        resolve("--env.x", "load", {}, "atropos_agent.tools")
    assert resolve("--env.x", "own_two", {}, "atropos_agent.tools") is json.dumps
    with pytest.raises(ValueError, match=r"--env.x module: there is none of that name"):
        resolve("--env.x", "module", {}, "atropos_agent.tools")


def test_what_is_named_for_later_is_imported_when_it_is_asked_for():
    there = lazy_import("this:s")
    assert "this" not in sys.modules
    with contextlib.redirect_stdout(io.StringIO()):
        assert "Ornhgvshy" in there()


def test_a_module_whose_import_fails_says_why(tmp_path, monkeypatch):
    (tmp_path / "half.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        lazy_import("half")()
