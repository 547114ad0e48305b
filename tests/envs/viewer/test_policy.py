"""The policy is on every answer."""

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from envs.viewer.policy import POLICY, PolicyMiddleware


def test_an_answer_can_not_do_without_it():
    def answer(request):
        return PlainTextResponse(
            "x", headers={"content-security-policy": "default-src *", "cache-control": "max-age=1"}
        )

    with TestClient(PolicyMiddleware(Starlette(routes=[Route("/", answer)]))) as client:
        headers = client.get("/").headers
        assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "max-age=1"
        assert client.get("/nowhere").headers["cache-control"] == "no-store"
