"""Who commands run as, where paths lead and what a command's environment is, by the image's own files."""

import contextlib

import pytest

from sandboxes.base import ExecResult, Limits, SandboxDied, SandboxEnded, SandboxError, SandboxSpec
from sandboxes.docker.daemon.container import DaemonContainer
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.sandbox import DockerSandbox
from sandboxes.docker.kernel_log import KernelLog

PASSWD = b"""root:x:0:0::/root:/bin/sh
dev:x:1000:1001::/home/dev:/bin/sh
broken line
odd:x:one:two::/:/bin/sh
odd:x:-1:99999999999::/:/bin/sh
odd:x:\xc2\xb2:4294967295::/:/bin/sh
ours:x:60417:60417::/:/bin/sh
"""
GROUP = b"root:x:0:\ndev:x:1001:\ngames:x:60:dev,root\nwheel:x:10:\nodd:x:ten:dev\n:::::\n"


class Image:
    """A channel to an executor of which only the image's files and the last command are of interest."""

    def __init__(self, **files):
        self.files = files
        self.call = None

    async def read(self, path, max_bytes, identity):
        if path not in self.files:
            raise FileNotFoundError(path)
        if isinstance(self.files[path], Exception):
            raise self.files[path]
        return self.files[path]

    async def execute(self, argv, **asked):
        self.call = asked | {"argv": argv}
        return ExecResult(0, b"")


def container_of(spec, container, channel, config):
    kind, stack = Kind.of(spec), contextlib.AsyncExitStack()
    return DaemonContainer(kind, "box", container, channel, config, stack, client=None, labels={}, log=KernelLog())


def sandbox(image, config=None, **spec):
    spec = SandboxSpec("image", **spec)
    container = container_of(spec, None, image, config or {})
    return DockerSandbox(container, spec, None)


@pytest.fixture
def image():
    return Image(**{"/etc/passwd": PASSWD, "/etc/group": GROUP})


@pytest.mark.parametrize(
    ("user", "who"),
    [
        ("", (0, 0, (0,), "/root")),
        ("dev", (1000, 1001, (1001, 60), "/home/dev")),
        ("1000", (1000, 1001, (1001, 60), "/home/dev")),
        ("dev:wheel", (1000, 10, (10,), "/home/dev")),
        ("77:88", (77, 88, (88,), "/")),
        ("77", (77, 0, (0,), "/")),
    ],
)
async def test_a_user_is_looked_up_as_docker_does(image, user, who):
    await sandbox(image).exec("true", user=user)
    found = image.call["identity"]
    assert (found.uid, found.gid, found.groups, found.home) == who
    assert image.call["env"]["HOME"] == who[-1]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("nobody", "no user 'nobody'"),
        ("odd", "no user 'odd'"),
        ("4294967295", "no user '4294967295'"),
        ("dev:audio", "no group 'audio'"),
        ("dev:odd", "no group 'odd'"),
        ("ours", "choose another"),
        ("60417", "choose another"),
    ],
)
async def test_a_user_or_group_that_the_image_lacks_is_told(image, user, expected):
    with pytest.raises(SandboxError, match=expected):
        await sandbox(image).exec("true", user=user)


@pytest.mark.parametrize("there", [None, IsADirectoryError(21, "a directory"), ValueError("too large")])
async def test_an_image_without_users_knows_numbers(there):
    image = Image(**({"/etc/passwd": there, "/etc/group": there} if there else {}))
    await sandbox(image).exec("true", user="5:6")
    assert (image.call["identity"].uid, image.call["identity"].gid) == (5, 6)


async def test_the_specs_directory_user_and_environment_come_before_the_images(image):
    config = {"WorkingDir": "/image", "User": "dev", "Env": ["HOME=/elsewhere"]}
    box = sandbox(image, config)
    assert box.workdir == "/image"
    await box.exec("true", cwd="sub")
    assert (image.call["cwd"], image.call["identity"].uid, image.call["env"]) == ("/image/sub", 1000, {})
    box = sandbox(image, config, workdir="/spec", user="root", env={"A": "1"})
    await box.exec(["true"], env={"B": "2"}, cwd="/absolute")
    assert box.workdir == "/spec"
    assert (image.call["cwd"], image.call["identity"].uid) == ("/absolute", 0)
    assert image.call["env"] == {"A": "1", "B": "2"}


async def test_a_list_of_hosts_puts_the_proxy_into_the_environment(image):
    await sandbox(image, limits=Limits(allowed_hosts=("x.org",)), env={"NO_PROXY": "mine"}).exec("true")
    assert image.call["env"]["https_proxy"].startswith("http://127.0.0.1:")
    assert image.call["env"]["NO_PROXY"] == "mine"


async def test_what_can_be_no_command_is_refused(image):
    with pytest.raises(ValueError, match="empty"):
        await sandbox(image).exec([])


class EndedImage(Image):
    """A channel whose container has ended, as the Docker daemon tells it."""

    alive = False
    id = "0" * 64

    def __init__(self, **state):
        super().__init__()
        self.state = {"Running": False, "Paused": False, "OOMKilled": False, "ExitCode": 137} | state

    async def execute(self, argv, **asked):
        raise SandboxDied("gone")

    async def show(self):
        return {"State": self.state}


@pytest.mark.parametrize(
    ("state", "limit"),
    [
        ({}, None),
        ({"ExitCode": 0}, None),
        ({"ExitCode": 65}, None),
        ({"OOMKilled": True}, "memory"),
        ({"ExitCode": 70}, "memory"),
        ({"ExitCode": 139}, "executor"),
        ({"ExitCode": 2}, "processes"),
    ],
)
async def test_what_ended_inside_is_told_from_what_was_ended_from_outside(state, limit):
    gone = EndedImage(**state)
    container = container_of(SandboxSpec("image"), gone, gone, {})
    box = DockerSandbox(container, SandboxSpec("image"), None)
    with pytest.raises(SandboxDied) as caught:
        await box.exec("true")
    assert getattr(caught.value, "limit", None) == limit
    assert isinstance(caught.value, SandboxEnded) is (limit is not None)
    assert await box.overran() == limit
