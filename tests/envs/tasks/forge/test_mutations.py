"""Planted bugs: each changes one span of the source, and the program."""

import ast
import inspect
import json.decoder
import textwrap
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.tasks.forge.mutations import OPERATORS, apply_mutations, find_mutations, is_bug

EXAMPLES = {
    "cmp_swap": ("if a < b: return 1", "if a <= b: return 1"),
    "bool_swap": ("return a and b", "return a or b"),
    "drop_operand": ("return a and b", "return a"),
    "drop_not": ("return not a", "return a"),
    "off_by_one": ("return a[4]", "return a[5]"),
    "arith_swap": ("return a + b", "return a - b"),
    "drop_if_branch": ("if a:\n        b = 1\n    return b", "return b"),
    "drop_else": ("if a:\n        b = a\n    else:\n        b = b\n    return b", "if a:\n        b = a\n    return b"),
    "drop_stmt": ("a.clear()\n    return b", "return b"),
    "swap_args": ("return divmod(a, b)", "return divmod(b, a)"),
    "continue_break": ("for x in a: continue", "for x in a: break"),
    "slice_shift": ("return a[b:]", "return a[b + 1:]"),
    "branch_swap": ("return a if b else 'é'", "return 'é' if b else a"),
    "sibling_call": ("return a.lstrip()", "return a.rstrip()"),
    "other_exception": ("try: a()\n    except ValueError: b()", "try: a()\n    except KeyError: b()"),
}
MODULES = (textwrap, json.decoder)


def mutants(source: str, operator: str) -> list[str]:
    return [apply_mutations(source, [one]) for one in find_mutations(source) if one.operator == operator]


@pytest.mark.parametrize("operator", EXAMPLES)
def test_each_operator_plants_its_bug(operator):
    before, after = (f"def f(a, b):\n    {body}\n" for body in EXAMPLES[operator])
    assert after in mutants(before, operator)


def test_a_default_is_changed():
    assert mutants("def f(a, b=True): return a\n", "wrong_default") == ["def f(a, b=False): return a\n"]


def test_every_operator_has_an_example():
    assert {*EXAMPLES, "wrong_default"} == set(OPERATORS)


@pytest.mark.parametrize(
    "source",
    [
        "X = 1 < 2\n",
        "def f(a: Literal[1] = None): pass\n",
        "def f(a): raise ValueError(a + 1)\n",
        "def f(a): return f'{a + 1}'\n",
        "def f(a:\n",
    ],
    ids=["module level", "annotation", "error message", "f-string", "no Python"],
)
def test_nothing_is_found_where_a_bug_would_not_be_one(source):
    assert find_mutations(source) == []


def test_a_comment_between_operands_is_left_alone():
    assert mutants("def f(a, b):\n    return (a  # < or >\n            < b)\n", "cmp_swap") == []


def test_text_before_a_mutation_may_take_several_bytes_a_character():
    assert mutants("def f(a): return 'äöü€' if a < 'ß' else a\n", "cmp_swap") == [
        "def f(a): return 'äöü€' if a <= 'ß' else a\n"
    ]


def test_what_parses_into_the_same_tree_is_no_bug():
    source = "def f(a, b): return a(b, b)\n"
    (swap,) = [one for one in find_mutations(source) if one.operator == "swap_args"]
    assert not is_bug(source, swap)


def test_mutations_that_overlap_are_refused():
    source = "def f(a, b): return a < 1 and b\n"
    found = {mutation.operator: mutation for mutation in find_mutations(source)}
    with pytest.raises(ValueError, match="overlap"):
        apply_mutations(source, [found["bool_swap"], found["drop_operand"]])


@cache
def candidates(module):
    source = inspect.getsource(module)
    return source, find_mutations(source)


@settings(max_examples=settings.default.max_examples)
@given(st.data())
def test_a_bug_in_a_real_module_parses_and_differs_in_its_own_span_alone(data):
    source, found = candidates(data.draw(st.sampled_from(MODULES)))
    mutation = data.draw(st.sampled_from(found))
    mutated = apply_mutations(source, [mutation])
    before, after = source.encode(), mutated.encode()
    assert after[: mutation.start] == before[: mutation.start]
    assert after[mutation.start + len(mutation.text.encode()) :] == before[mutation.end :]
    if is_bug(source, mutation):
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
        assert mutation.function.split(".")[-1] in {
            node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)
        }


def test_nearly_all_candidates_in_real_modules_are_bugs():
    for module in MODULES:
        source, found = candidates(module)
        assert len(found) > 30
        some = found[::3]  # each takes two parses of the module
        assert sum(is_bug(source, mutation) for mutation in some) > 0.9 * len(some)
