"""Google's generateContent."""

import json

import pytest
from agents import AGENTS, opened
from native import DONE, Said, asks

from atropos_agent.gateway.gemini import Gemini, of_path
from atropos_agent.gateway.requests import Fault, HistoryMessage, Refusal

STREAM = "models/gemini-2.5-pro:streamGenerateContent"


def test_a_message_is_told_in_parts():
    results = [
        {"functionResponse": {"id": "b", "name": "say", "response": {"output": "x"}}},
        {"functionResponse": {"id": "a", "name": "say", "response": {"error": "no", "code": 3}}},
        {"functionResponse": {"id": "c", "name": "say", "response": {}}},
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
        {"text": "Go on."},
    ]
    request = Gemini().read({"contents": [{"role": "user", "parts": results}]})
    assert list(request.messages) == [
        HistoryMessage("tool", "x", call_id="b"),
        HistoryMessage("tool", '{"error": "no", "code": 3}', call_id="a"),
        HistoryMessage("tool", "", call_id="c"),
        HistoryMessage("user", "[image/png, 3 bytes: not shown to this model]\nGo on.", unshown=1),
    ]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"result": "It is:\n42"}, "It is:\n42"),
        ({"result": 0}, '{"result": 0}'),
        ({"error": "no"}, '{"error": "no"}'),
        ({"status": "success", "report": "Sunny."}, '{"status": "success", "report": "Sunny."}'),
        ({"id": 17, "type": "bug"}, '{"id": 17, "type": "bug"}'),
        ({"title": "T", "year": 1999, "url": "x.com"}, '{"title": "T", "year": 1999, "url": "x.com"}'),
        ({"data": [1], "format": "csv"}, '{"data": [1], "format": "csv"}'),
        ({"content": [{"type": "text", "text": "a"}]}, '{"content": [{"type": "text", "text": "a"}]}'),
    ],
)
def test_a_value_that_a_function_returns_is_shown_with_all_its_fields(response, text):
    results = [{"functionResponse": {"id": "a", "name": "look", "response": response}}]
    request = Gemini().read({"contents": [{"role": "user", "parts": results}]})
    assert list(request.messages) == [HistoryMessage("tool", text, call_id="a")]


def test_a_file_in_a_value_is_words():
    picture = {"type": "image", "mimeType": "image/png", "data": "QUJD"}
    response = {"content": [{"type": "text", "text": "a"}, picture], "isError": False}
    results = [{"functionResponse": {"id": "a", "name": "look", "response": response}}]
    (message,) = Gemini().read({"contents": [{"role": "user", "parts": results}]}).messages
    words = "[image/png, 3 bytes: not shown to this model]"
    assert json.loads(message.text) == {"content": [{"type": "text", "text": "a"}, words], "isError": False}
    assert message.unshown == 1


def test_results_without_ids_are_those_of_the_calls_with_their_names_in_their_order():
    calls = [{"functionCall": {"name": name, "args": {}}} for name in ("say", "look", "say")]
    results = [{"functionResponse": {"name": name, "response": {"output": name}}} for name in ("say", "say", "look")]
    once = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    first, *answers, second, _, _, _ = Gemini().read({"contents": once * 2}).messages
    assert [call.id for call in first.calls] == ["call-0", "call-1", "call-2"]
    assert [one.call_id for one in answers] == ["call-0", "call-2", "call-1"]
    assert [call.id for call in second.calls] == ["call-3", "call-4", "call-5"]


def test_both_cases_of_googles_json_are_read_and_schemas_are_json_schemas():
    given = {"type": "OBJECT", "properties": {"to_whom": {"type": "STRING"}, "type": {"type": "ARRAY"}}}
    body = {
        "system_instruction": {"parts": [{"text": "Be good."}]},
        "tools": [{"function_declarations": [{"name": "say", "parameters": given}]}],
        "generation_config": {"max_output_tokens": 5, "top_k": 3},
        "contents": [{"parts": [{"function_call": {"name": "say", "args": {"to_whom": "me"}}}], "role": "model"}],
    }
    request = Gemini().read(body)
    assert request.messages[0] == HistoryMessage("system", "Be good.")
    assert request.messages[1].calls[0].arguments == {"to_whom": "me"}
    assert (request.max_tokens, request.noted) == (5, ("topK",))
    assert request.tools[0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"to_whom": {"type": "string"}, "type": {"type": "array"}},
    }


def test_integers_may_stand_in_quotes():
    contents = [{"parts": [{"text": "go"}]}]

    def read(**config):
        return Gemini().read({"contents": contents, "generationConfig": config}).max_tokens

    assert read(maxOutputTokens="256", candidateCount="1") == 256
    for wrong in ("0", "-5", "2.5", " 5", "", "five", "９", "9" * 5000):
        with pytest.raises(Refusal, match="maxOutputTokens: must be an integer of at least 1"):
            read(maxOutputTokens=wrong)


def test_an_object_stands_for_a_list_of_one_and_null_for_nothing():
    function = {"name": "say", "parameters": {"type": "OBJECT", "properties": {"tools": {"type": "STRING"}}}}
    call = {"functionCall": {"name": "say", "args": {"parts": {"tools": None}}}, "text": None}
    result = {"functionResponse": {"name": "say", "response": {"a": None}, "id": None}, "text": None}
    contents = [
        {"parts": {"text": "go", "functionCall": None}},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [result]},
    ]
    single, plain = (
        {"systemInstruction": {"parts": {"text": "Be good."}}, "contents": contents[0], "tools": None},
        {"contents": contents, "tools": {"functionDeclarations": function}},
    )
    assert list(Gemini().read(single).messages) == [HistoryMessage("system", "Be good."), HistoryMessage("user", "go")]
    request = Gemini().read(plain)
    assert [tool["function"]["name"] for tool in request.tools] == ["say"]
    assert set(request.tools[0]["function"]["parameters"]["properties"]) == {"tools"}
    asked, reply, answer = request.messages
    assert (asked.text, reply.text, answer.text) == ("go", "", '{"a": null}')
    assert reply.calls[0].arguments == {"parts": {"tools": None}}


def test_what_is_not_followed_beside_the_sampling_is_noted():
    calling = {"mode": "VALIDATED", "allowedFunctionNames": ["say"]}
    body = {
        "contents": [{"parts": [{"text": "go"}]}],
        "safetySettings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}],
        "toolConfig": {"functionCallingConfig": calling, "retrievalConfig": {"languageCode": "de"}},
        "tools": [{"functionDeclarations": [{"name": "say", "response": {"type": "STRING"}}]}],
    }
    calling_names = ("functionCallingConfig.allowedFunctionNames", "functionCallingConfig.mode")
    others = ("safetySettings", "toolConfig.retrievalConfig", "tools.response")
    assert Gemini().read(body).noted == (*calling_names, *others)
    assert Gemini().read(body | {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}).noted == others[::2]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"tools": [{"googleSearch": {}}]}, "is run by a provider"),
        ({"cachedContent": "cachedContents/1"}, "not kept by name"),
        ({"generationConfig": {"candidateCount": 2}}, "there is one candidate"),
        ({"generationConfig": {"responseLogprobs": True}}, "the rollout's own"),
        ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "only text"),
        ({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "QUJD"}}]}]}, "'inlineData' can't"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://x/y"}}]}]}, "'fileData' can't"),
        ({"contents": [{"role": "other", "parts": []}]}, "must be one of user, model"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(body, why):
    with pytest.raises(Refusal, match=why):
        Gemini().read(body)


def test_the_path_says_which_model_and_whether_the_answer_is_streamed():
    assert of_path(STREAM, b"key=x&alt=sse", {}) == {"model": "gemini-2.5-pro", "stream": True}
    for name in ("Qwen/Qwen3-8B", "qwen3:8b"):  # Google's client puts any name after models/
        assert of_path(f"models/{name}:generateContent", b"", {}) == {"model": name, "stream": False}
    assert of_path("models/m:generateContent", b"", {}) == {"model": "m", "stream": False}
    assert of_path("chat/completions", b"", {"stream": True}) == {"stream": True}
    with pytest.raises(Refusal, match="must be sse"):
        of_path(STREAM, b"", {})


async def test_why_a_reply_ended(fitted):
    async with opened(fitted, [DONE, asks("one"), DONE, Said(spoiled="malformed")]) as (client, _):
        answers = []
        for number, most in enumerate((None, None, 1, None)):
            agent = AGENTS["gemini"](client, generationConfig={"maxOutputTokens": most})
            agent.user(f"go {number}")
            answers.append(json.loads((await client.call(agent.path, agent.request()))[2]))
    assert [one["candidates"][0]["finishReason"] for one in answers] == ["STOP", "STOP", "MAX_TOKENS", "STOP"]
    assert "text" in answers[3]["candidates"][0]["content"]["parts"][0]
    counted = answers[0]["usageMetadata"]
    assert counted["totalTokenCount"] == counted["promptTokenCount"] + counted["candidatesTokenCount"]


async def test_models_are_listed_in_googles_shape(fitted):
    async with opened(fitted) as (client, _):
        (one,) = json.loads((await client.call("/v1beta/models", {}, method="GET"))[2])["models"]
        assert one == json.loads((await client.call(f"/v1beta/{one['name']}", {}, method="GET"))[2])
    assert one["supportedGenerationMethods"] == ["generateContent", "countTokens"]


async def test_a_signature_tells_the_answer(fitted):
    """Clients send no thinking back, and may have changed the text: the signature stays."""
    async with opened(fitted, [asks("one", thinking="hm", content="First."), DONE]) as (client, _):
        agent = AGENTS["gemini"](client)
        agent.user("go")
        reply = await agent.ask(keep=False)
        agent.keep({**reply, "parts": [part for part in reply["parts"] if not part.get("thought")]})
        agent.results(reply)
        await agent.ask()
        assert len((await client.session.result()).segments) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_is_sent_where_it_is_asked_for(fitted, stream):
    async with opened(fitted, [Said(content="Yes.", thinking="hm")] * 2) as (client, _):
        parts = []
        for config in ({}, {"thinkingConfig": {"includeThoughts": True}}):
            agent = AGENTS["gemini"](client, stream=stream, generationConfig=config)
            agent.user(f"go {config}")
            parts.append([part["text"] for part in (await agent.ask())["parts"]])
    assert parts == [["Yes."], ["hm", "Yes."]]


async def test_tokens_are_counted_without_sampling(fitted):
    async with opened(fitted) as (client, engine):
        contents = [{"role": "user", "parts": [{"text": "go"}]}]
        for body in ({"contents": contents}, {"generateContentRequest": {"model": "models/m", "contents": contents}}):
            _, _, answers = await client.call("/v1beta/models/m:countTokens", body)
            assert json.loads(answers)["totalTokens"] > 0
        assert engine.exchanges == []


def test_errors_are_googles():
    answers = Gemini().error(Refusal("x", Fault.OURS))
    assert answers == {"error": {"code": 500, "message": "x", "status": "INTERNAL"}}
    assert Gemini().error(Refusal("x", Fault.TOO_LONG))["error"]["status"] == "INVALID_ARGUMENT"
