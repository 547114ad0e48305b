"""doctor's look at a teacher."""

import pytest
from certificates import certificate, wrong
from scripted_engine import ScriptedEngine
from teacher_engine import TeacherEngine


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(lambda prompt: "one, two", smollm2_tokenizer) as engine:
        yield engine


async def test_a_teacher_that_fits_is_in_the_certificate(engine, tokenizer_folder, smollm2_tokenizer):
    with TeacherEngine(smollm2_tokenizer) as teacher:
        found = await certificate(engine, tokenizer_folder, teacher=teacher.url, teacher_weight=0.5)
    (check,) = [check for check in found.checks if check.name == "teacher"]
    address = teacher.url.removesuffix("/v1")
    assert check.text == f"scripted at {address} scores our ids; tokens' advantages have 0.5 times the reverse KL"
    assert found.ok


async def test_a_teacher_that_scores_nothing_is_wrong(engine, tokenizer_folder, smollm2_tokenizer):
    with TeacherEngine(smollm2_tokenizer) as teacher:
        teacher.known = False
        found = await certificate(engine, tokenizer_folder, teacher=teacher.url)
    assert "can't score a prompt" in wrong(found)["teacher"]
