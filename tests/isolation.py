"""How the Docker daemon isolates containers, read once in a test run.

A backend that has crun start its sandboxes reads it from a container of the Docker daemon's, one for each kind of
limits. That costs a fifth of a second of a processor, as much as ten sandboxes, and some hundred tests open a backend.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envs.records.disk import replace_file
from sandboxes.docker.crun import starter as starting
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.starter import CrunStarter
from sandboxes.docker.crun.template import Template
from sandboxes.docker.executor.container import Kind


@contextmanager
def read_once(folder: Path) -> Iterator[None]:
    """Have backends take what another one, of any worker, has read of the same Docker daemon. folder: for that."""
    read_template, read, keep = starting.read_template, CrunStarter._read_template, CrunStarter._keep_filter

    def file_of(starter: CrunStarter, kind: Kind) -> Path:
        key = starter._daemon._engine.info["ID"], kind.limits, kind.switch_users
        return folder / hashlib.sha256(repr(key).encode()).hexdigest()

    async def read_or_known(starter: CrunStarter, kind: Kind) -> Template:
        if starting.read_template is not read_template:  # a test has its own
            return await read(starter, kind)
        file = file_of(starter, kind)
        if not file.exists():
            replace_file(file, json.dumps(await read(starter, kind)).encode())
        return json.loads(file.read_bytes())

    async def keep_for_all(starter: CrunStarter, kind: Kind, template: Template, bundle: Bundle) -> None:
        await keep(starter, kind, template, bundle)
        kept = starter._templates[kind.limits, kind.switch_users].result()
        replace_file(file_of(starter, kind), json.dumps(kept).encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrunStarter, "_read_template", read_or_known)
        patch.setattr(CrunStarter, "_keep_filter", keep_for_all)
        yield
