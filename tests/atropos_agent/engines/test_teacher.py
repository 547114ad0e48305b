"""A teacher scores exactly the sampled tokens; one that can't is refused by name."""

import pytest
from teacher_engine import LOGPROB, TeacherEngine

from atropos_agent.engines import completions
from atropos_agent.engines.errors import ModelNotServed, NotThisServer
from atropos_agent.engines.teacher import Teacher
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, AgentResult, EngineError, SequenceData, StopReason, TeacherScores


def result(*rows):
    return AgentResult(True, "", (), StopReason.ANSWERED, rows, ())


def row(*sampled):
    """A row of a prompt of two ids, the sampled ones, and a result of a tool."""
    ids = [900, 901, *sampled, 902]
    none = [IGNORED, IGNORED], [IGNORED]
    return SequenceData("", ids, [*none[0], *sampled, *none[1]], [1.0, 1.0, *[-0.25] * len(sampled), 1.0])


@pytest.fixture
def engine(smollm2_tokenizer):
    with TeacherEngine(smollm2_tokenizer) as engine:
        yield engine


async def test_each_sampled_token_has_one_logprob(engine):
    engine.likes = {8: -2.0}
    async with Teacher(engine.url, "scripted") as teacher:
        made = await teacher.score(result(row(7, 8), row(9)))
    assert [segment.teacher for segment in made.segments] == [TeacherScores([LOGPROB, -2.0]), TeacherScores([LOGPROB])]
    assert sorted(engine.scored) == [[900, 901, 7, 8], [900, 901, 9]], "nothing after the last sampled token is sent"


async def test_its_likeliest_tokens_are_kept_if_wanted(engine):
    async with Teacher(engine.url, "scripted", top=2) as teacher:
        (made,) = (await teacher.score(result(row(7, 8)))).segments
    assert made.teacher == TeacherScores([LOGPROB] * 2, [[0, 1]] * 2, [[-0.125, -0.25]] * 2)


async def test_a_failing_teacher_is_asked_again(engine, monkeypatch):
    monkeypatch.setattr(completions, "backoff_s", lambda doublings, most: 0.0)
    engine.faults = [503, 500, 429]
    async with Teacher(engine.url, "scripted") as teacher:
        (made,) = (await teacher.score(result(row(7)))).segments
    assert made.teacher == TeacherScores([LOGPROB])


async def test_a_server_that_scores_nothing_is_an_infrastructure_failure(engine):
    engine.known = False
    async with Teacher(engine.url, "scripted") as teacher:
        with pytest.raises(EngineError, match=r"the teacher at \S+ can't score a prompt"):
            await teacher.score(result(row(7)))


@pytest.mark.parametrize("value", [0.5, float("nan")])
async def test_impossible_logprobs_are_refused(engine, value, monkeypatch):
    async with Teacher(engine.url, "scripted") as teacher:

        async def scores(ids, top):
            return [{i: value} for i in ids[1:]]

        monkeypatch.setattr(teacher.server, "scores", scores)
        with pytest.raises(EngineError, match="positive or not finite"):
            await teacher.score(result(row(7)))


@pytest.mark.parametrize("other", [{5: float("nan")}, {5: 0.5}, {-5: -1.0}, {10**30: -1.0}, {5: -float("inf")}])
async def test_impossible_tokens_and_logprobs_are_not_among_the_likeliest(engine, other, monkeypatch):
    async with Teacher(engine.url, "scripted", top=1) as teacher:

        async def scores(ids, top):
            return [{i: -2.0, **other} for i in ids[1:]]

        monkeypatch.setattr(teacher.server, "scores", scores)
        (made,) = (await teacher.score(result(row(7)))).segments
    assert made.teacher == TeacherScores([-2.0], [[7]], [[-2.0]])


async def test_a_teacher_that_fits_is_accepted(engine, smollm2_tokenizer):
    async with Teacher(engine.url, "default") as teacher:
        await teacher.check(ChatTemplate(smollm2_tokenizer), 1000)
        assert teacher.server.config.model_name == "scripted", "its only model is taken"


async def test_another_tokenizer_is_refused_by_name(engine, smollm2_tokenizer):
    engine.template = None

    class Shifted:
        def encode(self, text, **_):
            return [i + 1 for i in smollm2_tokenizer.encode(text, add_special_tokens=False)]

        decode = smollm2_tokenizer.decode

    template = ChatTemplate(smollm2_tokenizer)
    engine.template = type("Other", (), {"tokenizer": Shifted(), "encode": template.encode, "close_id": 2})()
    async with Teacher(engine.url, "scripted") as teacher:
        with pytest.raises(NotThisServer, match=r"scripted\) has another tokenizer.*set --env.teacher to"):
            await teacher.check(template, 1000)


async def test_other_control_tokens_are_another_tokenizer(engine, smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)

    class OtherEnds:
        def encode(self, text, **_):
            ids = smollm2_tokenizer.encode(text, add_special_tokens=False)
            return [i + 1 if i == template.close_id else i for i in ids]

        decode = smollm2_tokenizer.decode

    engine.template = type("Other", (), {"tokenizer": OtherEnds(), "encode": template.encode, "close_id": 2})()
    async with Teacher(engine.url, "scripted") as teacher:
        with pytest.raises(NotThisServer, match="another tokenizer"):
            await teacher.check(template, 1000)


async def test_a_small_context_window_is_refused_by_name(engine, smollm2_tokenizer):
    engine.window = 1000
    async with Teacher(engine.url, "scripted") as teacher:
        with pytest.raises(NotThisServer, match="--max-model-len 1001"):
            await teacher.check(ChatTemplate(smollm2_tokenizer), 1000)


async def test_an_unknown_model_is_told_with_the_teachers_own_option(engine, smollm2_tokenizer):
    async with Teacher(engine.url, "other") as teacher:
        with pytest.raises(ModelNotServed, match=r"^the teacher at .*set --env.teacher_model to one of scripted"):
            await teacher.check(ChatTemplate(smollm2_tokenizer), 1000)
