"""Images of past runs, shown and removed."""

import time

import aiodocker
import pytest

from sandboxes.base import SandboxError
from sandboxes.docker.images import task_images
from sandboxes.docker.images.store import ImageStore
from sandboxes.docker.images.task_images import list_task_images, remove_images

MB = 2**20


class Daemon:
    """A Docker daemon with some images."""

    def __init__(self, *images):
        self.images = images

    async def _query_json(self, path):
        assert path == "system/df"
        return {"Images": list(self.images), "LayersSize": sum(image["Size"] for image in self.images)}


def image(*tags, days=0.0, mb=100, shared=40, containers=0):
    created = int(time.time() - days * 86_400)
    return {
        "Id": next(iter(tags), ""),
        "RepoTags": list(tags),
        "Created": created,
        "Size": mb * MB,
        "SharedSize": shared * MB,
        "Containers": containers,
    }


@pytest.fixture
def removed(monkeypatch):
    names = []

    async def remove_image(client, name, *, force):
        assert not force
        names.append(name)
        return name != "atropos-task:in-use"

    monkeypatch.setattr(task_images, "remove_image", remove_image)
    return names


@pytest.mark.parametrize("misses", [2, 3])
async def test_a_daemon_that_misses_a_container_which_has_gone_is_asked_again(monkeypatch, misses):
    daemon, paths = Daemon(image("atropos-task:a")), []

    async def _query_json(path):
        paths.append(path)
        if len(paths) <= misses:
            raise aiodocker.DockerError(404, "NotFound: snapshot 1-init-parent-view-2 does not exist: not found")
        return await Daemon._query_json(daemon, path)

    monkeypatch.setattr(daemon, "_query_json", _query_json)
    if misses == 2:
        assert [one.names for one in await list_task_images(daemon)] == [["atropos-task:a"]]
        return
    with pytest.raises(SandboxError, match="measure the images"):
        await list_task_images(daemon)
    made = []

    async def make():
        made.append(True)

    paths.clear()
    await ImageStore(daemon, None, budget_mb=1)._make_with_room(make)
    assert made, "the image is there all the same"


async def test_a_daemon_that_measures_for_somebody_else_is_waited_for(monkeypatch):
    answers = iter([aiodocker.DockerError(500, "a disk usage operation is already running"), None])
    daemon = Daemon(image("atropos-task:a"))

    async def _query_json(path):
        if error := next(answers):
            raise error
        return await Daemon._query_json(daemon, path)

    monkeypatch.setattr(daemon, "_query_json", _query_json)
    assert [one.names for one in await list_task_images(daemon)] == [["atropos-task:a"]]


async def test_images_of_tasks_are_shown_and_no_others(removed):
    daemon = Daemon(
        image("atropos-task:new"),
        image("debian:12", days=9),
        image(days=9),
        image("atropos-task:kept", "mine:1", days=9),
        image("atropos-task:old", days=3, shared=-1),
    )
    found = await list_task_images(daemon)
    assert [(one.names, round(one.mb), round(one.days)) for one in found] == [
        (["atropos-task:old"], 100, 3),
        (["atropos-task:new"], 60, 0),
    ]
    assert removed == []


async def test_the_old_ones_that_nobody_uses_are_removed(removed):
    daemon = Daemon(
        image("atropos-task:new", days=1),
        image("atropos-task:used", days=9, containers=1),
        image("atropos-task:old", "atropos-task:the-same", days=3),
        image("atropos-task:in-use", days=3),
    )
    gone = await remove_images(daemon, await list_task_images(daemon), days=2)
    assert [one.names for one in gone] == [["atropos-task:old", "atropos-task:the-same"]]
    assert removed == ["atropos-task:old", "atropos-task:the-same", "atropos-task:in-use"], "the last one stays"


async def test_the_oldest_images_of_past_runs_go_first_when_there_is_more_than_the_bound(removed):
    daemon = Daemon(
        image("atropos-task:of-today"),
        image("atropos-task:used", days=9, containers=1),
        image("debian:12", days=9),
        image("atropos-task:old", days=3),
        image("atropos-task:older", days=4),
    )
    store = ImageStore(daemon, None, budget_mb=400)

    async def make():
        pass

    await store._make_with_room(make)
    assert removed == ["atropos-task:older", "atropos-task:old"]
