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


@pytest.mark.parametrize("builder", ["build -t {image} ${HOME}", "build {} {context}", "build {image.tag}", "build {"])
def test_a_builder_with_other_words_in_braces_is_refused(builder):
    with pytest.raises(ValidationError, match=r"only \{image\} and \{context\} stand in braces"):
        PodOptions(builder=builder)
    assert PodOptions(builder="build -t {image} ${{HOME}}")
