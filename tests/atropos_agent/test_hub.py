"""A hub that can't be reached is noticed by one request, whichever way it fails."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from huggingface_hub import constants

from atropos_agent import hub
from atropos_agent.hub import unavailable_reason


@pytest.fixture
def hub_that_answers(monkeypatch):
    """A hub whose every answer has this status."""
    servers = []

    def start(status):
        class Answer(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.send_response(status)
                self.end_headers()

        server = HTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 120)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [200, 401, 404])
def test_a_hub_that_answers_is_used(hub_that_answers, status):
    hub_that_answers(status)
    assert unavailable_reason() is None


def test_a_proxy_that_answers_in_its_place_is_named(hub_that_answers):
    hub_that_answers(503)
    assert unavailable_reason() == f"{constants.ENDPOINT} can't be reached: it answers 503"


def test_a_closed_port_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 120)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    assert "refused" in unavailable_reason()


def test_a_hub_that_takes_the_request_and_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert unavailable_reason()


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    monkeypatch.setattr(hub, "get_session", released.wait)
    try:
        assert "no answer within 0.2 seconds" in unavailable_reason()
    finally:
        released.set()


def test_whoever_chose_to_work_without_it_is_not_warned(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://nowhere.invalid")
    assert unavailable_reason() is None
