"""Most tests beside this one are skipped where no trainer is installed: a name that is ours no more is found here."""

import ast
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[3]

THEIRS = {"_agent_loop_postprocess", "_exit", "_flash_attn", "_run_agent_loop", "_run_prompt", "_RolloutTaskInput"}
THEIRS |= {"_convert_samples_to_train_data", "_create_workflow_task", "_process_response_into_experience"}
THEIRS |= {"_health_monitors", "_load_agent_executor"}
"""Private names of Python and of the trainers."""


def used(files: list[Path]) -> set[str]:
    """Private names after a dot, other than those of `self`."""
    return {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def defined() -> set[str]:
    """Names of functions, and of what is assigned, in the package and in tests."""
    names = set()
    for file in [*(ROOT / "envs").rglob("*.py"), *(ROOT / "atropos_agent").rglob("*.py"), *HERE.parent.rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    names.add(name)
    return names


def test_private_names_that_these_tests_use_are_there():
    assert used(sorted(HERE.glob("*.py"))) - defined() == THEIRS
