"""Options of an E2B server on the command line."""

import pytest
from pydantic import ValidationError

from envs.swe.config import SWEEnvConfig
from sandboxes.e2b.options import E2BOptions


def test_they_are_options_of_the_environment():
    assert SWEEnvConfig(e2b={"api_url": "http://here"}).e2b == E2BOptions(api_url="http://here")


def test_a_misspelt_one_is_refused():
    with pytest.raises(ValidationError, match="api_uri"):
        E2BOptions(api_uri="http://here")


def test_a_lease_outlasts_the_pauses_between_its_renewals():
    with pytest.raises(ValidationError, match="lease_s"):
        E2BOptions(lease_s=60)


@pytest.mark.parametrize(
    "wrong", [{"api_url": "here:8000"}, {"sandbox_url": "http://{name}"}, {"sandbox_url": "http://{"}]
)
def test_an_address_that_leads_nowhere_is_refused(wrong):
    with pytest.raises(ValidationError, match=r"with http:// or https://|only {id} and {domain} stand in braces"):
        E2BOptions(**wrong)
