"""Parts of messages: what is text, what is refused, and what words are said for."""

import base64
import json

import pytest
from agents import AGENTS, Told, assert_every_token_is_accounted_for, opened
from native import DONE, asks
from native_families import FAMILIES

from atropos_agent.gateway.parts import flatten_content, part
from atropos_agent.gateway.requests import Refusal

DATA = base64.b64encode(b"\x89PNG" + b"x" * 9130).decode()
SAID = "[image/png, 9,134 bytes: not shown to this model]"
PICTURES = {
    "messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}", "detail": "low"}},
    "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
    "mcp": {"type": "image", "data": DATA, "mimeType": "image/png"},
    "gemini": {"inlineData": {"mimeType": "image/png", "data": DATA}},
}
OTHERS = {
    "[image: not shown to this model]": {"type": "image", "source": {"type": "url", "url": "http://x.com/a.png"}},
    "[input_image: not shown to this model]": {"type": "input_image", "file_id": "file_1"},
    "[wav, 3 bytes: not shown to this model]": {
        "type": "input_audio",
        "input_audio": {"data": "AAAA", "format": "wav"},
    },
    "[application/pdf, 2 bytes: not shown to this model]": {
        "type": "document",
        "title": "A paper",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAA="},
    },
    "[application/zip, 3 bytes: not shown to this model]": {
        "type": "resource",
        "resource": {"uri": "file:///a.zip", "mimeType": "application/zip", "blob": "AAAA"},
    },
    "[None: not shown to this model]": {},
}
TEXTS = [
    ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "a"),
    ({"type": "a_type_of_next_year", "text": "a", "annotations": []}, "a"),
    ({"type": "refusal", "refusal": "no"}, "no"),
    ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}, "title": "T"}, "T\na"),
    ({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}]}}, "a"),
    (
        {"type": "search_result", "source": "s", "title": "T", "content": [{"type": "text", "text": "a"}]},
        "T\ns\na",
    ),
    ({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "a"}}, "a"),
    ({"type": "tool_reference", "tool_name": "say"}, "say"),
    ({"type": "json", "json": {"a": [1, "b"]}}, '{"json": {"a": [1, "b"]}}'),
    ({"type": "ran", "stdout": "a", "stderr": "", "return_code": 1}, '{"stdout": "a", "stderr": "", "return_code": 1}'),
    ({"type": "ran", "stdout": "a", "code": 0, "content": []}, '{"stdout": "a", "code": 0, "content": []}'),
    ({"type": "ran", "content": []}, ""),
]


@pytest.mark.parametrize(("block", "text"), TEXTS)
def test_blocks_that_hold_only_text_are_text_whatever_they_are_called(block, text):
    assert part(block, "x", refuses=True) == (text, 0)
    assert flatten_content([block, {"type": "text", "text": "b"}], "x", refuses=True) == (f"{text}\nb", 0)


@pytest.mark.parametrize(("expected", "block"), [*((SAID, one) for one in PICTURES.values()), *OTHERS.items()])
def test_what_no_text_can_show_is_refused_or_told_in_words(expected, block):
    assert part(block, "x", refuses=False) == (expected, 1)
    with pytest.raises(Refusal, match="can't be shown to the model"):
        part(block, "x", refuses=True)


def test_a_block_that_holds_a_picture_is_no_text():
    inside = {"type": "search_result", "title": "T", "content": [{"type": "text", "text": "a"}, PICTURES["mcp"]]}
    assert part(inside, "x", refuses=False)[1] == 1
    nested = json.loads('{"content":' * 300 + '"a"' + "}" * 300)
    assert part(nested, "x", refuses=False)[1] == 1


def seen(agent, kind, place):
    """Let the last result of an agent's history hold a picture, or the user's message after it."""
    if kind == "gemini":
        if place == "behind":
            agent.user([{"text": "It is:"}, PICTURES[kind]])
        else:
            agent.history[-1]["parts"][0]["functionResponse"] |= {
                "response": {"output": "It is:"},
                "parts": [PICTURES[kind]],
            }
        return
    picture = [{"type": "text" if kind != "responses" else "input_text", "text": "It is:"}, PICTURES[kind]]
    if place == "behind":
        agent.history.append({"role": "user", "content": picture})
    elif kind == "messages":
        agent.history[-1]["content"][0]["content"] = picture
    else:
        agent.history[-1]["output" if kind == "responses" else "content"] = picture


@pytest.mark.parametrize("place", ["in the result", "behind"])
@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("family", [one for one in FAMILIES if one != "gemma2"])
async def test_a_picture_that_a_tool_has_read_ends_nothing_and_is_counted(fit, family, kind, place):
    fitted = fit(family)
    async with opened(fitted, [asks("one"), asks("two"), DONE]) as (client, engine):
        agent = AGENTS[kind](client)
        agent.user("go")
        agent.results(await agent.ask())
        seen(agent, kind, place)
        agent.results(await agent.ask())
        await agent.ask()
        result = await client.session.result()
    prompt = fitted.template.decode(engine.exchanges[1].prompt)
    assert any(f"It is:{line}{SAID}" in prompt for line in ("\n", "\\n")), "some write results as JSON"
    assert (result.success, result.counts.unshown) == (True, 1)
    assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize("kind", AGENTS)
async def test_a_picture_that_the_request_consists_of_is_refused_also_behind_a_reply(fitted, kind):
    async with opened(fitted, [DONE]) as (client, _):
        agent = AGENTS[kind](client)
        agent.user([PICTURES[kind]])
        with pytest.raises(Told, match="can't be shown"):
            await agent.ask()
        agent.history.pop()
        agent.user("go")
        await agent.ask()
        agent.user([PICTURES[kind]])
        with pytest.raises(Told, match="can't be shown"):
            await agent.ask()
        result = await client.session.result()
    assert result.counts.unshown == 0


async def test_large_pictures_are_no_long_prompt(fitted):
    large = {**PICTURES["mcp"], "data": "A" * 6_000_000}
    async with opened(fitted, [asks("one"), DONE], max_total_tokens=4000) as (client, engine):
        agent = AGENTS["chat"](client)
        agent.user("go")
        agent.results(await agent.ask())
        agent.history[-1]["content"] = [large, large]
        await agent.ask()
        assert (await client.session.result()).counts.unshown == 2
    assert "[image/png, 4,500,000 bytes" in fitted.template.decode(engine.exchanges[1].prompt)
