"""Labels of weights, as inference servers give them."""

import pytest

from atropos_agent.engines.versions import version_of


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
        ([], None),
        ([{"version": "step-4"}, {"version": "default"}], None),
        (["step-4"], None),
    ],
)
def test_a_label_names_a_step_or_none(label, version):
    assert version_of(label) == version
