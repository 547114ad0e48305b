"""The parameters of functions whose annotations may name what is imported for type checkers alone."""

import importlib
import inspect
import sys

import pytest

from envs.functions.judging import check_score
from envs.rewards import find_reward
from sandboxes.registry import named_factory
from sandboxes.signatures import signature_of
from tools import default_tools
from tools.base import Tool

MODULE = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Missing
def reward(task: Missing, outcome: Missing) -> float:
    return 1.0
def score(task: Missing, answer: str) -> float:
    return 1.0
def backend(*, base_image: Missing = None):
    return None
class Maker:
    def __init__(self, sandbox: Missing, size: int = 3):
        self.size = size
    async def grow(self, by: int) -> str:
        '''Grow.'''
        return str(self.size + by)
async def wants(thing: Missing) -> str:
    '''Take a thing.'''
    return ""
"""
AS_TEXT = pytest.param("from __future__ import annotations\n", id="text")
LAZY = pytest.param(
    "",
    id="lazy",
    marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at once before Python 3.14"),
)


@pytest.fixture(params=[AS_TEXT, LAZY])
def lazily(request, tmp_path, monkeypatch):
    """A module of the user's, by its name."""
    (tmp_path / "lazily_annotated.py").write_text(request.param + MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lazily_annotated", raising=False)
    yield "lazily_annotated"
    sys.modules.pop("lazily_annotated", None)


def test_parts_may_name_types_that_only_type_checkers_import(lazily):
    assert find_reward("--env.reward", f"{lazily}:reward")(None, None) == 1
    check_score(sys.modules[lazily].score)
    named_factory(f"{lazily}:backend", base_image="any")
    tools = default_tools(None, [f"{lazily}:Maker.grow:size=4"])
    assert [tool.name for tool in tools] == ["grow"]


def test_a_tools_parameter_needs_a_type_that_exists(lazily):
    with pytest.raises(TypeError, match="parameter 'thing' needs a type that JSON can carry"):
        Tool.of(importlib.import_module(lazily).wants)


def test_a_signature_is_what_inspect_says_of_it():
    def plain(a: int, *b: str, c: "float" = 2.0) -> None: ...

    assert signature_of(plain) == inspect.signature(plain)
    with pytest.raises(TypeError):
        signature_of(3)
