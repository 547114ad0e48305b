"""Chat templates that others wrote: `pytest -m slow --templates FOLDER`, such as the folder that llama.cpp ships.

They stand on SmolLM2's tokenizer, with all that looks like a control token in a template added to it.
"""

import re
from copy import deepcopy

import pytest
from families import with_template
from native import SCENARIOS, assert_rows_are_the_truth, play
from transformers import AddedToken

from atropos_agent.fitted import FittedFormat
from atropos_agent.tokens.record import problems
from atropos_agent.tokens.template import ChatTemplate

pytestmark = pytest.mark.slow

CONTROL = re.compile(
    r"<\|[^|<>\s'\"{}]{1,40}\|?>|<[^|<>\s'\"{}]{1,40}\|>|<｜[^｜<>]{1,40}｜>|｜DSML｜|\[/?[A-Z_]{3,30}\]|<SPECIAL_\d+>"
    r"|</?(?:assistant|user|system|sep|eos|bos|s|think|tool_calls?|tool_response|arg_key|arg_value|seed:[a-z_]+|sop"
    r"|minimax:tool_call|(?:start|end)_of_turn)>|\]~!b\[|\]~b\]|\[e~\[|\[gMASK\]"
)
SHORT = [name for name in SCENARIOS if name != "thirty turns"]


def pytest_generate_tests(metafunc):
    folder = metafunc.config.getoption("--templates")
    files = sorted(folder.glob("*.jinja")) if folder else []
    metafunc.parametrize("file", files, ids=[file.stem for file in files])


@pytest.fixture
def fitted(file, smollm2_tokenizer):
    source = file.read_text()
    tokenizer = deepcopy(smollm2_tokenizer)
    tokens = [*sorted(set(CONTROL.findall(source))), "<s>", "</s>"]
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in tokens], special_tokens=True)
    tokenizer.bos_token, tokenizer.eos_token = "<s>", "</s>"
    try:
        return FittedFormat.of("auto", ChatTemplate(with_template(tokenizer, source)))
    except ValueError as error:
        assert str(error).startswith(("the chat template refuses a plain", "the chat template loses messages"))
        pytest.skip(str(error))


@pytest.mark.parametrize("how", ["withheld", "odd"])
async def test_rows_are_the_truth(fitted, how):
    ends = "withheld" if fitted.template.close_id is None else how
    for name in SHORT:
        result, exchanges = await play(fitted, SCENARIOS[name], ends)
        assert len(exchanges) == len(SCENARIOS[name])
        assert_rows_are_the_truth(result, exchanges)
        assert problems(result.segments, result.record) == [None] * len(result.segments)
