"""Tokenizers: SmolLM2's from the package registry always, with small templates of many habits; other
families where there is a folder."""

from itertools import product
from pathlib import Path

import pytest
from families import REAL, TEMPLATES, TOKENIZERS, family, read_all, real
from native_families import fitted_family

from atropos_agent.tokens.template import ChatTemplate


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Leave all triples of a test marked `pairs` to `./run test --all`. Without it each pair of entries of its three
    tables is run, with an entry of the third that depends on both: a Latin square, where the last is the shortest. The
    others are not even collected then, which each worker would do: they are thousands."""
    for mark in metafunc.definition.iter_markers("pairs"):
        tables = [list(table) for table in mark.kwargs.values()]
        pairs = set()
        for (at, first), (beside, second) in product(enumerate(tables[0]), enumerate(tables[1])):
            pairs.add((first, second, tables[2][(at + beside) % len(tables[2])]))
        ordinary = metafunc.config.option.markexpr == "not slow"
        triples = [
            pytest.param(*triple, marks=() if triple in pairs else pytest.mark.slow)
            for triple in product(*tables)
            if triple in pairs or not ordinary
        ]
        indirect = [name for name in mark.kwargs if name == "any_tokenizer"]
        metafunc.definition.add_marker(pytest.mark.parametrize(list(mark.kwargs), triples, indirect=indirect))


def pytest_collection_finish(session):
    """Read the tokenizers that were given once for all workers, in the process that these are forked from."""
    given = session.config.getoption("--tokenizers")
    if given is not None and session.config.pluginmanager.has_plugin("workers are forked"):
        read_all(given)


@pytest.fixture(scope="session")
def tokenizer(smollm2_tokenizer):
    return smollm2_tokenizer


@pytest.fixture(scope="session", params=TOKENIZERS)
def any_tokenizer(request, smollm2_tokenizer, tokenizers_dir: Path | None):
    if request.param == "smollm2":
        return smollm2_tokenizer
    if request.param in TEMPLATES:
        return family(smollm2_tokenizer, request.param)
    if tokenizers_dir is None or not (tokenizers_dir / REAL[request.param]).is_dir():
        # Other people's tokenizers are not ours to ship; SmolLM2's, from a package, is always tested.
        pytest.skip(f"no folder {REAL[request.param]} in the tokenizers' directory (--tokenizers DIR)")
    return real(tokenizers_dir, request.param)


@pytest.fixture(scope="session")
def template(any_tokenizer) -> ChatTemplate:
    """The chat template of `any_tokenizer`, one for all of its rollouts, as in a run."""
    return ChatTemplate(any_tokenizer)


@pytest.fixture(scope="session")
def fit(smollm2_tokenizer, tokenizers_dir):
    """Return a family's fitted format, or skip where its tokenizer is not there."""
    known = {}

    def fitted(name):
        if name not in known:
            known[name] = fitted_family(smollm2_tokenizer, tokenizers_dir, name)
        if known[name] is None:
            # Other people's tokenizers are not ours to ship.
            pytest.skip(f"no tokenizer of {name} in the tokenizers' directory (--tokenizers DIR)")
        return known[name]

    return fitted


@pytest.fixture(scope="session")
def smollm2(smollm2_tokenizer) -> ChatTemplate:
    """SmolLM2's chat template, which leaves history as it is."""
    return ChatTemplate(smollm2_tokenizer)
