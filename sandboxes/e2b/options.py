"""The options of an E2B server."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class E2BOptions(BaseModel):
    """How a server is reached, and how long its sandboxes live."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_url: str = Field(default="https://api.e2b.app", min_length=1, description="API of the server")
    sandbox_url: str = Field(
        default="https://49983-{id}.{domain}",
        min_length=1,
        description="Address of a sandbox's envd, with {id} and {domain}",
    )
    key: str = Field(
        default="E2B_API_KEY", min_length=1, description="Name of the environment variable with the API's key"
    )
    max_starts: int = Field(default=8, ge=1, description="Sandboxes that are started at the same time")
    start_timeout_s: float = Field(default=120.0, gt=0, description="Longest start of a sandbox")
    room_timeout_s: float = Field(default=1200.0, gt=0, description="Longest wait for room on a busy server")
    outage_timeout_s: float = Field(default=120.0, gt=0, description="Longest outage that sandboxes outlast")
    lease_s: int = Field(
        default=900, ge=600, description="Seconds after which the server ends a sandbox whose driver is gone"
    )
