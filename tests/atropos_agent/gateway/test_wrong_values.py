"""Requests of which one value is another than it should be: answered or refused, and never a failure of ours."""

import json
from copy import deepcopy

import pytest
from agents import AGENTS, assert_every_token_is_accounted_for, opened
from native import DONE, asks
from native_families import fitted_family

NESTED = json.loads('{"a":' * 700 + "1" + "}" * 700)
VALUES = [
    *(None, True, -1, 2**70, 1.5, "", "x", "\ud83d", "fc_gw_0_" + "9" * 5000),
    *([], {}, [5], [[]], {"type": []}, NESTED, '{"a":' * 700 + "1" + "}" * 700, '{"a": NaN}', "[1]"),
]
# Of two families, and with how many of the values each place is tried: a third of them, by turns, or all.
TRIED = [
    ("smollm2", 3),
    pytest.param("smollm2", 1, marks=pytest.mark.slow),
    pytest.param("Qwen3-Coder, by hand", 1, marks=pytest.mark.slow),
]
PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "what to say", "enum": ["a", "b"]},
        "many": {"type": "array", "items": {"type": "integer"}},
        "any": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": 1},
    },
    "required": ["text"],
}
FUNCTION = {"name": "say", "description": "Say it.", "parameters": PARAMETERS}
GEMINI = "models/m:generateContent"
BODIES = {
    "chat/completions": {
        "model": "m",
        "stream": False,
        "stream_options": {"include_usage": True},
        "max_tokens": 1000,
        "max_completion_tokens": 1000,
        "stop": ["END"],
        "n": 1,
        "modalities": ["text"],
        "response_format": {"type": "text"},
        "tool_choice": "auto",
        "temperature": 0.5,
        "tools": [{"type": "function", "function": FUNCTION}],
        "messages": [
            {"role": "system", "content": "You are an agent."},
            {"role": "user", "content": [{"type": "text", "text": "go"}], "name": "me"},
            {
                "role": "assistant",
                "content": "First.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "call_9", "type": "function", "function": {"name": "say", "arguments": '{"text": "a"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_9", "content": "a"},
        ],
    },
    "responses": {
        "model": "m",
        "stream": False,
        "instructions": "You are an agent.",
        "max_output_tokens": 1000,
        "previous_response_id": None,
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [
            {"type": "function", **FUNCTION},
            {"type": "custom", "name": "patch", "description": "Patch."},
            {"type": "namespace", "name": "more", "tools": [{"type": "function", **FUNCTION}]},
        ],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "content": []},
            {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "say", "arguments": '{"text": "a"}'},
            {"type": "function_call_output", "call_id": "c", "output": "a"},
            {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "a"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "a"}]},
            {"type": "message", "id": "msg_1", "role": "developer", "content": "more"},
        ],
    },
    "messages": {
        "model": "m",
        "stream": False,
        "max_tokens": 1000,
        "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "auto"},
        "output_format": None,
        "output_config": {"format": None},
        "tools": [{"name": "say", "description": "Say it.", "input_schema": PARAMETERS}],
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "gw-7"},
                    {"type": "text", "text": "First."},
                    {"type": "tool_use", "id": "c", "name": "say", "input": {"text": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "a"}]},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    },
    GEMINI: {
        "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
        "generationConfig": {
            "maxOutputTokens": 1000,
            "stopSequences": ["END"],
            "candidateCount": 1,
            "responseMimeType": "text/plain",
            "responseModalities": ["TEXT"],
            "thinkingConfig": {"includeThoughts": True},
        },
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "tools": [{"functionDeclarations": [{"name": "say", "description": "", "parametersJsonSchema": PARAMETERS}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "First.", "thoughtSignature": "Z3ctNw=="},
                    {"functionCall": {"id": "c", "name": "say", "args": {"text": "a"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c", "name": "say", "response": {"output": "a"}}},
                    {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
                    {"text": "go on"},
                ],
            },
        ],
    },
}


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    within = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in within:
        yield from places(one, (*path, key))


def spoiled(body, path, value):
    """A body with another value at a place."""
    body = deepcopy(body)
    inside = body
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return body


@pytest.mark.parametrize("family, one_in", TRIED)
@pytest.mark.parametrize("path", BODIES)
async def test_whichever_value_is_wrong_the_rollout_is_not_spoilt(smollm2_tokenizer, family, one_in, path):
    fitted, body = fitted_family(smollm2_tokenizer, None, family), BODIES[path]
    wrong = []
    for turn, place in enumerate(one for one in places(body) if one):
        async with opened(fitted, [DONE] * len(VALUES), max_steps=10_000) as (client, _):
            for value in VALUES[turn % one_in :: one_in]:
                wrong_body = spoiled(body, place, value)
                status, _, answer = await client.call(f"/v1beta/{path}", wrong_body, raises=False)
                if status not in (200, 400) or client.session.failure is not None:
                    wrong.append(
                        f"{place}: {str(value)[:60]!r}: {status} {answer[:200]!r} {client.session.failure!r:.200}"
                    )
                    client.session.failure = None
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("family, one_in", TRIED)
@pytest.mark.parametrize("makes", AGENTS.values())
async def test_whichever_value_is_wrong_behind_a_reply_of_ours_the_rollout_is_not_spoilt(
    smollm2_tokenizer, family, one_in, makes
):
    fitted, wrong, known = fitted_family(smollm2_tokenizer, None, family), [], None
    while known is None or known:
        async with opened(fitted, [asks("one", thinking="hm")] + [DONE] * len(VALUES)) as (client, engine):
            agent = makes(client)
            agent.user("go")
            agent.results(await agent.ask())
            agent.user("and now?")
            body = agent.request()
            if known is None:
                known = [one for one in places(body) if one and one[0] in ("messages", "input", "contents")]
            place = known.pop()
            for value in VALUES[len(known) % one_in :: one_in]:
                wrong_body = spoiled(body, place, value)
                status, _, answer = await client.call(agent.path, wrong_body, raises=False)
                if status not in (200, 400) or client.session.failure is not None:
                    wrong.append(f"{place}: {str(value)[:60]!r}: {status} {answer[:200]!r}")
                    client.session.failure = None
            assert_every_token_is_accounted_for(await client.session.result(), engine)
    assert not wrong, "\n".join(wrong)
