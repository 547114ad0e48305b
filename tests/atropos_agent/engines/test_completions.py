"""vLLM's protocol: what is asked again, what is refused, and what is said about it."""

import asyncio
import json
import math

import httpx
import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines import completions
from atropos_agent.engines.completions import CompletionsServer, backoff_s
from atropos_agent.engines.errors import ContextOverflow, EngineDown, ModelNotServed, NotThisServer, OddAnswer, Refused
from atropos_agent.engines.http import NoAnswer, Response
from atropos_agent.engines.load import Load
from atropos_agent.engines.protocols import open_server
from atropos_agent.engines.replies import UnsoundReply
from atropos_agent.types import AgentError, EngineError, TokenMismatch

CHOICE = {"token_ids": [5], "prompt_token_ids": [1], "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.5]}}


class Wire:
    """Answers as `HttpClient` does, with what a function of httpx's requests returns."""

    def __init__(self, url, handler):
        self._inner = httpx.AsyncClient(base_url=url, transport=httpx.MockTransport(handler))
        self.timeouts = []

    async def get(self, path, *, timeout=None):
        return await self._ask("GET", path)

    async def post(self, path, *, json, timeout=None, headers=None):
        self.timeouts.append(timeout)
        return await self._ask("POST", path, json=json)

    async def _ask(self, *request, **more):
        try:
            answer = await self._inner.request(*request, **more)
        except httpx.HTTPError as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        return Response(answer.status_code, answer.content, headers=answer.headers)


def server_with(handler, **config):
    """A server whose requests `handler` answers, without a network."""
    options = {"base_url": "http://there/v1", "model_name": "m", "server_type": "vllm", **config}
    server = CompletionsServer(APIServerConfig(**options))
    server._http = Wire(server.url, handler)
    return server


@pytest.fixture
def pauses(monkeypatch):
    """Tries follow each other at once; what would have been waited for is kept."""
    requests = []

    def none(doublings, *, most):
        requests.append((doublings, most))
        return 0.0

    monkeypatch.setattr(completions, "backoff_s", none)
    return requests


def ask(server):
    return server.tokens_and_logprobs_completion(input_ids=[1], max_tokens=4, n=1)


async def test_a_busy_server_is_asked_again_with_the_same_ids(pauses):
    bodies = []

    def answer(request):
        bodies.append(request.content)
        return httpx.Response(503) if len(bodies) < 3 else httpx.Response(200, json={"choices": [CHOICE]})

    assert (await ask(server_with(answer)))[1] == [[5]]
    assert len(bodies) == 3
    assert len(set(bodies)) == 1
    assert pauses == [(0, 8.0), (1, 8.0)]


async def test_after_the_last_attempt_the_error_says_how_many_there_were(pauses):
    requests = []
    server = server_with(lambda request: requests.append(request) or httpx.Response(503, text="busy"))
    with pytest.raises(EngineError, match=r"the inference server at http://there answered 503: busy \(4 attempts\)"):
        await ask(server)
    assert len(requests) == 4


async def test_a_refusal_is_not_asked_again():
    requests = []
    server = server_with(lambda request: requests.append(request) or httpx.Response(400, text="no such option"))
    with pytest.raises(EngineError, match="no such option"):
        await ask(server)
    assert len(requests) == 1


def refused(status, text):
    return lambda request: httpx.Response(status, text=text)


def responding(body):
    return lambda request: httpx.Response(200, json=body)


TOO_LONG = "The decoder prompt (length 4000) is longer than the maximum model length of 2048."


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (refused(503, "busy"), EngineDown),
        (refused(502, "<html>bad gateway</html>"), EngineDown),
        (refused(504, "upstream took too long"), EngineDown),
        (refused(429, "too many requests: queue too long"), EngineDown),
        (refused(522, "origin timed out"), EngineDown),
        (refused(500, "request took too long"), OddAnswer),
        (refused(500, "Internal Server Error"), OddAnswer),
        (refused(500, TOO_LONG), ContextOverflow),
        (refused(400, TOO_LONG), ContextOverflow),
        (refused(400, "no such option"), Refused),
        (refused(404, "no such model"), Refused),
        (refused(200, "<html>please wait</html>"), OddAnswer),
        (refused(200, ""), OddAnswer),
        (responding({"error": {"message": TOO_LONG}}), ContextOverflow),
        (responding({"error": {"message": "overloaded", "code": 503}}), EngineDown),
        (responding({"error": {"message": "no such option", "code": 400}}), Refused),
        (responding({"object": "error", "message": "no such model", "code": 404}), Refused),
        (responding({"detail": "Engine not initialized", "status_code": 503}), EngineDown),
        (responding({"error": "something"}), OddAnswer),
        (responding({"status": "ok"}), OddAnswer),
        (responding([]), OddAnswer),
        (responding(None), OddAnswer),
        (responding({"choices": "none"}), OddAnswer),
        (responding({"choices": [{}]}), OddAnswer),
        (responding({"choices": [CHOICE | {"prompt_token_ids": 1}]}), OddAnswer),
        (refused(200, "[" * 1000 + "]" * 1000), OddAnswer),
        (refused(200, '{"error":' + "[" * 1000 + "]" * 1000 + "}"), OddAnswer),
        (responding({"choices": [CHOICE | {"finish_reason": None}]}), UnsoundReply),
    ],
)
async def test_each_answer_that_is_none_means_one_thing(handler, expected):
    with pytest.raises(AgentError) as caught:
        await server_with(handler).once(input_ids=[1], max_tokens=4, n=1)
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    "gone",
    [
        refused(404, '{"error": {"message": "The model `policy` does not exist.", "code": 404}}'),
        refused(404, "default backend"),
        responding({"object": "error", "message": "no such model", "code": 404}),
    ],
)
async def test_a_model_that_was_there_is_waited_for(pauses, gone):
    """An inference server that was started again has its adapter some time later only."""
    answers = [responding({"choices": [CHOICE]}), gone, gone, responding({"choices": [CHOICE]})]

    def answer(request):
        return answers.pop(0)(request)

    server = server_with(answer)
    await ask(server)
    with pytest.raises(OddAnswer, match="load the model or adapter again") as caught:
        await server.once(input_ids=[1], max_tokens=4, n=1)
    assert caught.value.broken, "it is looked into whether it is this prompt alone that gets it"
    assert (await ask(server))[1] == [[5]]


async def test_an_aborted_reply_without_ids_is_told_as_aborted_and_asked_for_again(pauses):
    aborted = {"token_ids": [], "prompt_token_ids": [1], "finish_reason": "abort", "logprobs": None}
    bodies = [{"choices": [aborted]}, {"choices": [CHOICE]}]
    server = server_with(lambda request: httpx.Response(200, json=bodies.pop(0)))
    assert (await ask(server))[1] == [[5]]


async def test_the_tokens_of_a_refused_answer_are_counted():
    choice = {"token_ids": [5, 6, 7], "prompt_token_ids": [1], "finish_reason": "error", "logprobs": None}
    with pytest.raises(UnsoundReply) as caught:
        await server_with(responding({"choices": [choice]})).once(input_ids=[1], max_tokens=4, n=1)
    assert caught.value.lost_tokens == 3
    answer = {"choices": [{**CHOICE, "logprobs": None}], "usage": {"completion_tokens": 9}}
    with pytest.raises(TokenMismatch) as caught:
        await server_with(responding(answer)).once(input_ids=[1], max_tokens=4, n=1)
    assert caught.value.lost_tokens == 9
    endless = json.dumps({"choices": [{"finish_reason": "stop"}], "usage": {"completion_tokens": math.inf}})
    with pytest.raises(TokenMismatch) as caught:
        await server_with(refused(200, endless)).once(input_ids=[1], max_tokens=4, n=1)
    assert caught.value.lost_tokens == 0


@pytest.mark.parametrize("body", ["[]", '{"choices": []}', '{"choices": [{"prompt_token_ids": [1e999]}]}'])
async def test_a_question_that_is_answered_oddly_is_an_infrastructure_failure(body):
    server = server_with(refused(200, body))
    with pytest.raises(EngineError, match="can't encode a text"):
        await server.prompt_ids_of("x")
    with pytest.raises(EngineError, match="can't score a prompt"):
        await server.scores([1, 2])


async def test_a_question_is_asked_again_while_nobody_answers(pauses):
    requests = []

    def answer(request):
        requests.append(request)
        if len(requests) < 3:
            raise httpx.ReadTimeout("slow") if len(requests) == 1 else httpx.ConnectError("refused")
        return httpx.Response(200, json={"choices": [CHOICE]})

    server = server_with(answer)
    assert await server.prompt_ids_of("x") == [1]
    assert server._http.timeouts == [10.0, 20.0, 40.0]


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (500, 4), (200, 4)])
async def test_a_question_that_is_refused_is_not_asked_for_ever(pauses, status, tries):
    requests = []
    server = server_with(lambda request: requests.append(request) or httpx.Response(status, text="<html>"))
    with pytest.raises(EngineError):
        await server.prompt_ids_of("x")
    assert len(requests) == tries


async def test_a_question_is_given_up_after_its_time(pauses):
    server = server_with(lambda request: httpx.Response(503))
    server.question_s = 0.0
    with pytest.raises(EngineError, match="503"):
        await server.prompt_ids_of("x")


async def test_an_answer_without_logprobs_is_refused_at_once():
    server = server_with(lambda request: httpx.Response(200, json={"choices": [{**CHOICE, "logprobs": None}]}))
    with pytest.raises(TokenMismatch, match="returned no logprobs"):
        await ask(server)


async def test_another_model_is_told_from_no_answer():
    server = server_with(lambda request: httpx.Response(200, json={"data": [{"id": "a"}, {"id": "b"}]}))
    with pytest.raises(ModelNotServed, match=r"set --openai\.model_name to one of a, b"):
        await server.connect()
    for status in (429, 500, 503):
        server = server_with(lambda request, status=status: httpx.Response(status, text="later"))
        with pytest.raises(EngineError, match=rf"can't answer now \({status}: later\)") as caught:
            await server.connect()
        assert type(caught.value) is EngineError, "it is waited for"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(401, text="no key"), "set --openai.api_key to its key"),
        (httpx.Response(403), "set --openai.api_key to its key"),
        (httpx.Response(404), "answers /v1/models with 404, so it is another program or another protocol"),
        (httpx.Response(405), "or --openai.server_type to what it speaks"),
        (httpx.Response(301), "answers /v1/models with 301, so"),
        (httpx.Response(301, headers={"location": "https://a/v1"}), "301 and points to https://a/v1"),
        (httpx.Response(200, text="<html>welcome</html>"), "something else than a list of models ('<html>welcome"),
        (httpx.Response(200, json={"models": []}), "something else than a list of models"),
    ],
)
async def test_what_will_never_be_our_server_is_told_from_one_that_is_not_there_yet(answer, said):
    with pytest.raises(NotThisServer) as caught:
        await server_with(lambda request: answer).connect()
    assert said in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("server_type", ["vllm", "atropos"])
async def test_what_speaks_no_http_or_no_tls_will_never_be_our_server(scheme, server_type):
    async def greet(reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        config = APIServerConfig(base_url=f"{scheme}://127.0.0.1:{port}/v1", model_name="policy")
        config = config.model_copy(update={"server_type": server_type})
        async with open_server(config) as server:
            with pytest.raises(NotThisServer, match=r"is no inference server that can be talked to \(.*set --openai"):
                await server.connect()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
async def test_a_server_that_is_not_there_yet_may_be_waited_for(status):
    with pytest.raises(EngineError) as caught:
        await server_with(lambda request: httpx.Response(status)).connect()
    assert not isinstance(caught.value, NotThisServer)


async def test_a_server_without_a_model_is_told_from_one_with_others():
    many = "set --openai.model_name to one of x{200}, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more"
    for listed, remedy in [
        ([], "load a model there"),
        (["a", "b"], "set --openai.model_name to one of a, b"),
        (["x" * 300, *map(str, range(1, 1000))], many),
    ]:
        served = {"data": [{"id": name} for name in listed]}
        server = server_with(lambda request, served=served: httpx.Response(200, json=served))
        with pytest.raises(ModelNotServed, match=f"does not serve .*; {remedy}$"):
            await server.connect()


async def test_the_only_model_is_taken_where_none_is_named():
    listed = {"data": [{"id": "only", "root": "/models/only", "max_model_len": 4096}]}
    server = server_with(lambda request: httpx.Response(200, json=listed), model_name="default")
    await server.connect()
    assert (server.config.model_name, server.root, server.max_model_len) == ("only", "/models/only", 4096)


async def test_a_server_that_hangs_is_given_up_and_one_that_is_slow_is_not():
    async def answer(request):
        if request.url.path == "/health":
            return httpx.Response(200)
        await asyncio.sleep(0.2)
        return httpx.Response(200, json={"choices": [CHOICE]})

    async def dead(request):
        if request.url.path == "/health":
            raise httpx.ConnectError("refused")
        await asyncio.sleep(60)

    slow, hanging = server_with(answer), server_with(dead)
    slow.probe_s = hanging.probe_s = 0.05
    assert (await slow.once(input_ids=[1], max_tokens=4, n=1))[1] == [[5]]
    with pytest.raises(EngineDown, match="has stopped answering"):
        await hanging.once(input_ids=[1], max_tokens=4, n=1)


async def test_the_load_is_that_of_the_servers_metrics():
    page = "vllm:num_requests_running 5\n"
    assert await server_with(lambda request: httpx.Response(200, text=page)).load() == Load(5.0, 0.0, 0.0)
    assert await server_with(lambda request: httpx.Response(404)).load() is None


async def test_what_is_odd_each_time_is_looked_into_with_other_prompts():
    def answer(request):
        prompt = json.loads(request.content)["prompt"]
        if len(prompt) > 100:
            return httpx.Response(500, text="Internal Server Error")
        return httpx.Response(200, json={"choices": [CHOICE | {"prompt_token_ids": prompt}]})

    server = server_with(answer)
    assert isinstance(await server.settle_error(OddAnswer("500", broken=True), list(range(20, 420))), ContextOverflow)
    assert server.max_model_len == 101


@pytest.mark.parametrize("data", [None, {}, [], [None], [{}], [[]], "x", 3, {"data": None}])
async def test_a_list_of_models_that_makes_no_sense_is_no_server(data):
    server = server_with(lambda request: httpx.Response(200, json={"data": data}))
    with pytest.raises(EngineError):
        await server.connect()


@pytest.mark.parametrize("window", [None, 0, -1, "8192", 1.5, [], True])
async def test_a_context_window_that_makes_no_sense_is_not_known(window):
    model = {"id": "m", "max_model_len": window, "root": ["x"]}
    server = server_with(lambda request: httpx.Response(200, json={"data": [model]}))
    server.config.model_name = "m"
    await server.connect()
    assert (server.max_model_len, server.root) == (None, None)


def test_a_server_that_fails_is_avoided_for_longer_each_time():
    server = server_with(lambda request: httpx.Response(200))
    ends = []
    for _ in range(12):
        server.note_outcome(EngineDown("x"))
        ends.append(server.sick_until)
    assert ends[0] < ends[2] < ends[-1] < ends[0] + 16
    server.note_outcome(None)
    assert server.sick_until == 0.0


def test_a_pause_doubles_up_to_its_most():
    for doublings, whole in [(-1, 0.5), (0, 1.0), (3, 8.0), (9, 15.0), (5000, 15.0)]:
        assert whole / 2 <= backoff_s(doublings, most=15.0) <= whole


POLICY_AND_BASE = [
    {"id": "base", "root": "/models/base", "max_model_len": 2048, "parent": None},
    {"id": "policy", "root": "/run/trainer/step-000003", "parent": "base"},
]


async def test_an_adapter_has_the_tokenizer_and_the_window_of_its_base():
    server = server_with(lambda request: httpx.Response(200, json={"data": POLICY_AND_BASE}), model_name="policy")
    await server.connect()
    assert (server.root, server.max_model_len) == ("/models/base", 2048)


async def test_a_reply_has_the_version_of_the_adapter_that_was_served_before_it():
    def answer(request):
        if request.url.path == "/v1/models":
            requests.append(request)
            return httpx.Response(200, json={"data": POLICY_AND_BASE})
        return httpx.Response(200, json={"choices": [CHOICE]})

    requests = []
    server = server_with(answer, model_name="policy")
    await server.connect()
    assert [(await ask(server)).versions for _ in range(20)] == [[3]] * 20
    assert len(requests) < 20


async def test_requests_that_begin_together_have_the_version_all_of_them():
    async def answer(request):
        if request.url.path == "/v1/models":
            await asyncio.sleep(0.01)
            return httpx.Response(200, json={"data": POLICY_AND_BASE})
        return httpx.Response(200, json={"choices": [CHOICE]})

    server = server_with(answer, model_name="policy")
    await server.connect()
    assert [reply.versions for reply in await asyncio.gather(*(ask(server) for _ in range(4)))] == [[3]] * 4


async def test_the_servers_own_word_on_its_weights_counts_more_and_a_base_model_has_no_version():
    def answer(request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": POLICY_AND_BASE})
        return httpx.Response(200, json={"choices": [{**CHOICE, **said}]})

    said = {"weight_versions": [{"version": "step-1", "start": 0, "end": 1}]}
    server = server_with(answer, model_name="policy")
    await server.connect()
    assert (await ask(server)).versions == [1]
    said = {}
    server = server_with(answer, model_name="base")
    await server.connect()
    assert (await ask(server)).versions == [None]


async def test_a_list_of_models_that_is_torn_costs_no_reply():
    def answer(request):
        if request.url.path == "/v1/models":
            return next(lists)
        return httpx.Response(200, json={"choices": [CHOICE]})

    torn = [httpx.Response(200, json=body) for body in ({}, [], {"data": [None]}, {"data": 3})]
    lists = iter([httpx.Response(200, json={"data": POLICY_AND_BASE}), *torn, httpx.Response(500)])
    server = server_with(answer, model_name="policy")
    await server.connect()
    server.adapter.believed_s = 0.0
    assert [(await ask(server)).versions for _ in range(5)] == [[None]] * 5


class Bounded(CompletionsServer):
    """A server that answers prompts of up to `most` ids without a 13, or none."""

    def __init__(self, most=100, *, works=True, max_model_len=None):
        super().__init__(APIServerConfig(base_url="http://engine/v1", model_name="m", server_type="vllm"))
        self.most, self.works, self.max_model_len = most, works, max_model_len

    async def can_sample(self, prompt):
        return self.works and len(prompt) <= self.most and 13 not in prompt


BROKEN, LONG = OddAnswer("500", broken=True), list(range(20, 420))


@pytest.mark.parametrize("most", [1, 2, 100, 399])
async def test_an_error_that_only_a_long_prompt_gets_is_a_full_context_window_which_is_then_known(most):
    server = Bounded(most)
    assert isinstance(await server.settle_error(BROKEN, LONG), ContextOverflow)
    assert server.max_model_len == most + 1


async def test_an_error_that_only_this_prompt_gets_is_refused_for_good():
    server = Bounded()
    assert type(await server.settle_error(BROKEN, [1, 13, 2])) is EngineError
    assert server.max_model_len is None


async def test_a_known_context_window_is_not_looked_for():
    server = Bounded(max_model_len=4096)
    assert type(await server.settle_error(BROKEN, LONG)) is EngineError
    assert server.max_model_len == 4096


async def test_an_error_may_pass_that_is_over_when_it_is_looked_into_or_that_every_prompt_gets():
    assert await Bounded().settle_error(BROKEN, [1, 2]) is BROKEN
    assert await Bounded(works=False).settle_error(BROKEN, [1, 2]) is BROKEN


async def test_what_is_no_completion_each_time_is_refused_for_good():
    assert type(await Bounded().settle_error(OddAnswer("HTML"), [1, 2])) is EngineError
