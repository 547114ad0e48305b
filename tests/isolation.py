"""What a backend asks of the Docker daemon at its start, done once in a test run.

A backend that has crun start its sandboxes reads the isolation of a container of the Docker daemon's, one for each kind
of limits, and holds each image by a container. Either costs as much as ten sandboxes, and some hundred tests open a
backend.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envs.records.disk import replace_file
from sandboxes.docker.crun import starter as starting
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.images import Images
from sandboxes.docker.crun.starter import CrunStarter
from sandboxes.docker.crun.template import Template
from sandboxes.docker.daemon.client import DaemonClient
from sandboxes.docker.daemon.starter import DaemonStarter
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


@contextmanager
def held(base_image: str) -> Iterator[None]:
    """Have backends take the base image as held: no test removes it from the Docker daemon that all have in common."""
    hold, is_held = DaemonStarter.start_holder, Images._is_held
    known: set[str] = set()

    async def is_base(client: DaemonClient, image: str) -> bool:
        if client.address is not None:  # probably a test's own Docker daemon
            return False
        if not known:
            known.add((await client.images.inspect(base_image))["Id"])
        return image in known

    @functools.wraps(hold)
    async def hold_others(starter: DaemonStarter, image: str, name: str) -> None:
        if not await is_base(starter.client, image):
            await hold(starter, image, name)

    @functools.wraps(is_held)
    async def is_base_or_held(images: Images, image: str) -> bool:
        return await is_base(images._client, image) or await is_held(images, image)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DaemonStarter, "start_holder", hold_others)
        patch.setattr(Images, "_is_held", is_base_or_held)
        yield
