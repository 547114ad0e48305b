"""Labels of weights, as inference servers give them."""

import pytest

from atropos_agent.engines.http import NoAnswer, Response
from atropos_agent.engines.versions import program_version, version_of


@pytest.mark.parametrize(
    ("label", "version"),
    [
        (3, 3),
        (0, 0),
        ("3", 3),
        ("step-42", 42),
        ("global_step_42", 42),
        ("/out/trainer/step-000042", 42),
        ("/out/checkpoint-7/", 7),
        ("policy-v12", 12),
        ([{"version": "step-4", "start": 0, "end": 9}, {"version": "step-5", "start": 9, "end": 12}], 4),
        (None, None),
        (True, None),
        (-1, None),
        (2.5, None),
        ("default", None),
        ("", None),
        ("Qwen2.5-Coder-7B", None),
        ("/models/llama-3.1-8", None),
        ("9" * 400, None),
        (2**63, None),
        ([], None),
        ([{"version": "step-4"}, {"version": "default"}], None),
        (["step-4"], None),
    ],
)
def test_a_label_names_a_step_or_none(label, version):
    assert version_of(label) == version


class Server:
    """Answers what is written down, and 404 elsewhere. answers: by path."""

    def __init__(self, answers):
        self.answers = answers

    async def get(self, path, *, timeout=None):
        if self.answers is None:
            raise NoAnswer("refused")
        status, text = self.answers.get(path, (404, "<html>"))
        return Response(status, text.encode())


@pytest.mark.parametrize(
    ("answers", "version"),
    [
        ({"/version": (200, '{"version": "0.14.1"}')}, "0.14.1"),
        ({"/version": (200, "<html>"), "/server_info": (200, '{"version": "0.5.6", "tp_size": 1}')}, "0.5.6"),
        ({"/version": (200, "[]"), "/info": (200, '{"version": 3}')}, None),
        ({}, None),
        (None, None),
    ],
)
async def test_a_server_tells_its_version_in_one_of_several_places_or_nowhere(answers, version):
    assert await program_version(Server(answers)) == version
