"""A rollout's requests stay with one server while it is well, and go to another when it is not."""

import time

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines.completions import Answer, CompletionsServer
from atropos_agent.engines.errors import ContextOverflow, EngineDown, OddAnswer
from atropos_agent.engines.replies import Defect, UnsoundReply
from atropos_agent.engines.route import Route
from atropos_agent.tokens.template import End
from atropos_agent.types import EngineError, TokenMismatch


class Fake(CompletionsServer):
    """Answers, or raises the next of its faults."""

    def __init__(self, name, *faults, max_model_len=None):
        super().__init__(APIServerConfig(base_url=f"http://{name}/v1", model_name="m", server_type="vllm"))
        self.faults = list(faults)
        self.requests = 0
        self.max_model_len = max_model_len

    async def once(self, **kwargs):
        self.requests += 1
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return Answer((fault, [[5]], [[-0.5]], ["stop"]))
        return Answer((kwargs["input_ids"], [[5]], [[-0.5]], ["stop"]))

    async def alive(self):
        return True


def ask(route):
    return route.tokens_and_logprobs_completion(input_ids=[1], max_tokens=1)


async def test_the_server_with_the_prefix_is_asked_again():
    first, second = Fake("a"), Fake("b")
    route = Route([first, second])
    assert not await route.alive()
    for _ in range(3):
        await ask(route)
    assert (first.requests, second.requests) == (3, 0)
    assert await route.alive()


async def test_the_least_busy_one_is_chosen_first():
    first, second = Fake("a"), Fake("b")
    first.in_flight = 2
    await ask(Route([first, second]))
    assert (first.requests, second.requests) == (0, 1)


async def test_while_one_fails_another_answers_and_the_time_is_counted():
    first, second = Fake("a", EngineDown("down")), Fake("b")
    route = Route([first, second])
    await ask(route)
    assert (first.requests, second.requests) == (1, 1)
    assert first.sick_until > time.monotonic()
    assert route.outage_s >= 0.0


async def test_while_none_is_well_the_request_waits():
    only = Fake("a", EngineDown("down"))
    route = Route([only])
    await ask(route)
    assert only.requests == 2
    assert route.outage_s >= 0.2


async def test_patience_ends():
    route = Route([Fake("a", EngineDown("down"))])
    route.patience_s = -1.0
    with pytest.raises(EngineError, match="no inference server has answered for"):
        await ask(route)


async def test_a_refusal_of_every_server_is_raised():
    first, second = Fake("a", EngineError("odd request")), Fake("b", EngineError("odd request, too"))
    with pytest.raises(EngineError, match="too"):
        await ask(Route([first, second]))


async def test_an_interrupted_reply_is_asked_for_again_and_its_tokens_are_counted():
    class Pausing(Fake):
        async def once(self, **kwargs):
            answer = await super().once(**kwargs)
            if self.requests == 1:
                return Answer((answer[0], [[5, 6]], [[-0.5, -0.5]], ["abort"]))
            return answer

    only = Pausing("a")
    route = Route([only])
    assert (await ask(route))[1] == [[5]]
    assert (only.requests, route.lost_tokens) == (2, 2)


async def test_a_server_that_aborts_every_reply_is_not_asked_for_ever():
    class Aborting(Fake):
        async def once(self, **kwargs):
            self.requests += 1
            return Answer((kwargs["input_ids"], [[5]], [[-0.5]], [None]))

        def note_outcome(self, error):
            """Is asked again at once."""

    only = Aborting("a")
    route = Route([only])
    with pytest.raises(EngineError, match=r"aborted the request \(20 times\)") as caught:
        await ask(route)
    assert route.lost_tokens + caught.value.lost_tokens == only.requests == 20


@pytest.mark.parametrize("ids", [[], [999999]], ids=["empty", "unknown id"])
async def test_a_server_whose_reply_is_unsound_is_left_for_another(ids):
    class Odd(Fake):
        async def once(self, **kwargs):
            return Answer((kwargs["input_ids"], [ids], [[-0.5] * len(ids)], ["stop"]))

    unknown = Vocabulary(range(100)).unknown_id
    route = Route([Odd("a"), Fake("b")], unknown_id=unknown)
    assert (await ask(route))[1] == [[5]]
    assert route.lost_tokens == len(ids)
    with pytest.raises(UnsoundReply):
        await ask(Route([Odd("a")], unknown_id=unknown))


class Vocabulary:
    """A vocabulary."""

    def __init__(self, ids):
        self.ids = ids

    def unknown_id(self, ids):
        return next((i for i in ids if i not in self.ids), None)


async def test_an_odd_answer_that_comes_again_and_again_is_looked_into():
    class Odd(Fake):
        attempts = 2
        looked = 0

        async def settle_error(self, error, prompt):
            self.looked += 1
            return error if self.looked == 1 else EngineError("for good")

    only = Odd("a", *[OddAnswer("HTML")] * 9)
    with pytest.raises(EngineError, match="for good"):
        await ask(Route([only]))
    assert (only.requests, only.looked) == (4, 2)


async def test_a_context_that_is_full_is_not_asked_about_elsewhere():
    class Full(Fake):
        attempts = 1

        async def settle_error(self, error, prompt):
            return ContextOverflow("4096")

    other = Fake("b")
    other.in_flight = 1
    with pytest.raises(ContextOverflow):
        await ask(Route([Full("a", OddAnswer("500", broken=True)), other]))
    assert other.requests == 0


async def test_a_server_that_was_given_other_ids_is_left():
    first, second = Fake("a", [7]), Fake("b")
    assert (await ask(Route([first, second])))[0] == [1]
    with pytest.raises(TokenMismatch, match="http://a was given another prompt"):
        await ask(Route([Fake("a", [7])]))


def test_the_smallest_context_window_counts():
    assert Route([Fake("a"), Fake("b", max_model_len=100), Fake("c", max_model_len=50)]).max_model_len == 50
    assert Route([Fake("a")]).max_model_len is None


class Saying(Fake):
    """Replies with ids of its own, of which it says that they stopped; id 2 ends a turn."""

    def __init__(self, *replies):
        super().__init__("a")
        self.replies = list(replies)

    async def once(self, **kwargs):
        self.requests += 1
        ids = self.replies.pop(0)
        return Answer((kwargs["input_ids"], [ids], [[-0.5] * len(ids)], ["stop"]))

    def note_outcome(self, error):
        """Is asked again at once."""


def end_of(ids, stop):
    return End.TOKEN if ids[-1] == 2 else End.STRING if stop and ids[-1] == 7 else End.NONE


async def test_a_reply_that_says_stop_without_an_end_was_cut_and_is_asked_for_again():
    server = Saying([5, 2], [5, 6], [5, 7], [5, 8, 2])
    route = Route([server], end_of=end_of)

    async def reply_ids(**more):
        return (await route.tokens_and_logprobs_completion(input_ids=[1], max_tokens=9, **more))[1][0]

    assert await reply_ids() == [5, 2]
    assert await reply_ids(stop=["x"]) == [5, 7], "the string that it stopped at is there"
    assert await reply_ids() == [5, 8, 2]
    assert (server.requests, route.lost_tokens) == (4, 2)


async def test_a_server_that_never_returns_the_end_withholds_it():
    server = Saying([5, 6], [5, 7])
    route = Route([server], end_of=end_of)
    for expected in ([5, 6], [5, 7]):
        answer = await route.tokens_and_logprobs_completion(input_ids=[1], max_tokens=9)
        assert answer[1] == [expected]


async def test_a_reply_that_is_longer_than_was_asked_for_is_refused():
    with pytest.raises(UnsoundReply, match="returned 3 tokens where 2 were asked for") as caught:
        await Route([Saying([5, 6, 2])]).tokens_and_logprobs_completion(input_ids=[1], max_tokens=2)
    assert (caught.value.defect, caught.value.lost_tokens) == (Defect.LONGER, 3)
