"""Options of pods on the command line."""

import pytest
from pydantic import ValidationError

from envs.swe.config import SWEEnvConfig
from sandboxes.kubernetes.options import PodOptions


def test_they_are_options_of_the_environment():
    assert SWEEnvConfig(pods={"namespace": "boxes"}).pods == PodOptions(namespace="boxes")


def test_a_misspelt_one_is_refused():
    with pytest.raises(ValidationError, match="name_space"):
        PodOptions(name_space="boxes")
