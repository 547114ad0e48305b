"""What is removed, and what is left alone. With containers it is tested in test_docker.py."""

import time
from dataclasses import replace
from datetime import UTC, datetime

import aiodocker
import pytest

from sandboxes.base import DaemonError
from sandboxes.docker.daemon import reap
from sandboxes.docker.daemon.reap import reap_dead_owners, remove, remove_owned
from sandboxes.owner import Owner

HERE = Owner.of_this_process()
DEAD = replace(HERE, id="dead", start="1")
BESIDE = replace(HERE, id="beside", space="another.1", start="1")
"""Of the same host name, in another process namespace or of another boot."""


class Container:
    def __init__(self, name, labels, state="running", age_s=0.0):
        self.id = name
        self._said = {"Labels": labels, "State": state, "Created": time.time() - age_s}

    def __getitem__(self, field):
        return self._said[field]

    async def show(self):
        """It has run to the end, unless it never ran, but began long before."""
        ended = datetime.fromtimestamp(self._said["Created"], UTC).isoformat()
        self._said["Created"] = "2026-11-22T12:00:00.123456789Z"  # as Docker's other answer has it
        return {"State": {"FinishedAt": "0001-01-01T00:00:00Z" if self._said["State"] == "created" else ended}}


class Daemon:
    """A Docker daemon that holds names of containers and images, and refuses to remove some."""

    def __init__(self, refuses=None):
        self.there, self.pictures, self.gone, self._refuses = [], [], [], refuses or {}
        self.containers = self.images = self
        self.here = False

    def container(self, name):
        daemon = self

        class One:
            async def delete(self, **options):
                await daemon.delete(name)

        return One()

    async def delete(self, name, **options):
        if name in self._refuses:
            raise aiodocker.DockerError(self._refuses[name], {"message": "no"})
        self.gone.append(name)

    async def list(self, **options):
        return [Container(*told) for told in self.there]

    async def _query_json(self, path, **options):
        return self.pictures


@pytest.fixture
def daemon():
    daemon = Daemon()
    for name, labels, state, age in [
        ("ours", HERE.labels(), "running", 0),
        ("dead's", DEAD.labels(), "running", 0),
        ("beside's", BESIDE.labels(), "running", 99_999),
        ("beside's, just ended", BESIDE.labels(), "exited", 60),
        ("beside's, left behind", BESIDE.labels(), "exited", 4_000),
        ("ours, long stopped", HERE.labels(), "exited", 99_999),
        ("not quite ours", {"atropos-agent.owner": "x"}, "exited", 99_999),
    ]:
        daemon.there.append((name, labels, state, age))
    for owner in (HERE, DEAD, BESIDE):
        daemon.pictures.append({"Id": f"{owner.id}'s image", "Labels": owner.labels(), "Created": time.time() - 60})
    return daemon


async def test_only_what_has_no_owner_any_more_is_reaped(daemon):
    assert await reap_dead_owners(daemon) == 3
    assert daemon.gone == ["dead's", "beside's, left behind", "dead's image"]


async def test_what_cannot_be_removed_keeps_nobody_from_starting(daemon, caplog):
    daemon._refuses = {"dead's": 500}
    assert await reap_dead_owners(daemon) == 2
    assert daemon.gone == ["beside's, left behind", "dead's image"]
    assert "stays for now" in caplog.text


async def test_what_has_ended_before_the_machines_start_has_no_owner(daemon, monkeypatch):
    monkeypatch.setattr(reap, "boot_time", lambda: time.time() - 30)
    await reap_dead_owners(daemon)
    assert "beside's, just ended" not in daemon.gone, "the daemon may be on another machine"
    daemon.here = True
    await reap_dead_owners(daemon)
    assert {"beside's, just ended", "beside's image"} <= set(daemon.gone)
    assert not {"beside's", "ours", "ours, long stopped"} & set(daemon.gone)


async def test_what_is_gone_or_going_is_as_good_as_removed():
    for status in (404, 409):
        await remove(Daemon({"x": status}), "x")
    with pytest.raises(DaemonError):
        await remove(Daemon({"x": 500}), "x")


@pytest.mark.parametrize("words", ["container state improper: stopped", "x: did not receive an exit event"])
async def test_a_container_that_is_about_to_end_is_removed_then(words):
    said = [aiodocker.DockerError(500, {"message": words})] * 2

    class Ending(Daemon):
        async def delete(self, name, **options):
            if said:
                raise said.pop()
            await super().delete(name)

    daemon = Ending()
    await remove(daemon, "x")
    assert daemon.gone == ["x"]


async def test_everything_of_an_owner_goes(daemon):
    await remove_owned(daemon, HERE.id)  # the daemon is asked for that label alone
    assert len(daemon.gone) == len(daemon.there) + len(daemon.pictures)
