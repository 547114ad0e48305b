"""Name a rollout to the router in front of inference servers: so its requests stay on one replica."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HEADERS = ("X-Session-ID", "X-SMG-Routing-Key")
"""Request headers by which routers choose a replica:

- X-Session-ID: vLLM's router, policy consistent_hash (vllm-project/router, docs/load_balancing/README.md).
- X-SMG-Routing-Key: SGLang's model gateway, policies consistent_hashing and manual, and others with
  --routing-key-override (docs.sglang.io/advanced_features/sgl_model_gateway.html); slime sends it, too
  (slime/rollout/sglang_rollout.py). Its value has at most 128 bytes.

Others are configured: NVIDIA Dynamo reads X-Dynamo-Session-ID."""

ECHOED = ("x-session-token",)
"""Response headers that name the replica, to be sent back with the next request: llm-d's session-affinity-scorer
(pkg/epp/framework/plugins/scheduling/scorer/sessionaffinity/session_affinity.go) takes no name of the client's."""


@dataclass(slots=True)
class Session:
    """A rollout's requests. id: the same in all of them; the server's own tokens are kept for each server apart."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _tokens: dict[str, dict[str, str]] = field(default_factory=dict)

    def headers(self, url: str, names: Sequence[str]) -> dict[str, str]:
        """Return the session's headers for the next request to a server. names: of the headers for the id."""
        return dict.fromkeys(names, self.id) | self._tokens.get(url, {})

    def note_response(self, url: str, headers: Mapping[str, str]) -> None:
        """Keep the replica's name from a server's answer."""
        if found := {name: headers[name] for name in ECHOED if name in headers}:
            self._tokens[url] = found
