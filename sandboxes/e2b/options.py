"""The options of an E2B server."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _address(text: str) -> str:
    try:
        whole = text.format(id="id", domain="domain")
    except (AttributeError, LookupError, ValueError) as error:
        raise ValueError("only {id} and {domain} stand in braces") from error
    if not whole.startswith(("http://", "https://")):
        raise ValueError("give it with http:// or https://")
    return text


Address = Annotated[str, AfterValidator(_address)]


class E2BOptions(BaseModel):
    """How a server is reached, and how long its sandboxes live."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    api_url: Address = "https://api.e2b.app"
    """API of the server"""
    sandbox_url: Address = "https://49983-{id}.{domain}"
    """Address of a sandbox's envd, with {id} and {domain}"""
    key: Annotated[str, Field(min_length=1)] = "E2B_API_KEY"
    """Name of the environment variable with the API's key"""
    max_starts: Annotated[int, Field(ge=1)] = 8
    """Sandboxes that are started at the same time"""
    start_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Longest start of a sandbox"""
    room_timeout_s: Annotated[float, Field(gt=0)] = 1200.0
    """Longest wait for room on a busy server"""
    outage_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Longest outage that sandboxes outlast"""
    lease_s: Annotated[int, Field(ge=600)] = 900
    """Seconds after which the server ends a sandbox whose driver is gone"""
