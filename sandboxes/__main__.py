"""`python -m sandboxes setup|reap`: prepare this machine for Docker sandboxes, or tidy up after crashes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain

from sandboxes.arguments import Parser, nonnegative_float
from sandboxes.base import SandboxError
from sandboxes.docker.crun.availability import ensure_crun
from sandboxes.docker.crun.reap import reap_dead_folders
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.reap import reap_dead_owners
from sandboxes.docker.daemon.startup import ensure_daemon
from sandboxes.docker.images.base_image import ensure_base_image
from sandboxes.docker.images.task_images import list_task_images, remove_images
from sandboxes.fleet import Host, read_hosts
from sandboxes.kubernetes.backend import reap_dead_drivers
from sandboxes.local.backend import reap_dead_directories
from sandboxes.log import set_up_log
from sandboxes.plurals import plural


async def setup() -> None:
    """Install and start a Docker daemon if none answers, install crun if it can start sandboxes here, and make the base
    image if it is missing."""
    print("a Docker daemon answers" if await ensure_daemon() is None else "started a Docker daemon")
    print(f"sandboxes are started by {await ensure_crun()}")
    print(f"image {await ensure_base_image()} is present")


async def reap(hosts: str | None = None, pods: str | None = None) -> None:
    """Remove the containers, images and directories left by dead processes of this machine; or pods of dead drivers."""
    if pods is not None:
        print(f"removed {plural(await reap_dead_drivers(pods), 'pod')} of dead drivers")
        return
    count = await asyncio.to_thread(reap_dead_directories)
    print(f"removed {plural(count, 'directory', 'directories')} of dead owners")
    for host in read_hosts(hosts) if hosts else [Host("")]:
        where = f" on {host.url}" if host.url else ""
        async with connect(host.url or None, host.certificates) as client:
            storage = Path((await client.system.info())["DockerRootDir"])
            if client.here and os.geteuid() == 0:
                count = await asyncio.to_thread(reap_dead_folders, storage)
                print(f"removed the sandboxes of {plural(count, 'dead owner')} of crun's{where}")
            count = await reap_dead_owners(client)
            print(f"removed {plural(count, 'container or image', 'containers and images')} of dead owners{where}")


async def images(hosts: str | None = None, remove_older: float | None = None) -> None:
    """Show the images built for tasks, and on request remove those without a container."""
    for host in read_hosts(hosts) if hosts else [Host("")]:
        where = f" on {host.url}" if host.url else ""
        async with connect(host.url or None, host.certificates) as client:
            found = await list_task_images(client)
            for one in found:
                used = f", {plural(one.containers, 'container')}" if one.containers else ""
                print(f"{one.mb:8,.0f} MB  {one.days:5.1f} days old{used}  {one.names[0]}")
            print(f"{plural(len(found), 'image')}{where}, {sum(one.mb for one in found):,.0f} MB")
            if remove_older is not None:
                gone = await remove_images(client, found, days=remove_older)
                print(f"removed {len(gone)} of them, {sum(one.mb for one in gone):,.0f} MB")


def main() -> int:
    set_up_log()
    parser = Parser(prog="python -m sandboxes", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for function in (setup, reap, images):
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.set_defaults(function=function)
        if function is not setup:
            command.add_argument("--hosts", help="Docker hosts to tidy up, such as ssh://a,ssh://b or a YAML file")
        if function is reap:
            text = "namespace of a cluster to tidy up instead; without a value the kubeconfig's"
            command.add_argument("--pods", nargs="?", const="", metavar="NAMESPACE", help=text)
        if function is images:
            text = "remove those older than so many days that no container uses; runs build them again"
            command.add_argument("--remove-older", type=nonnegative_float, metavar="DAYS", help=text)
    options = vars(parser.parse_args())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        asyncio.run(options.pop("function")(**options))
        sys.stdout.flush()
    except BrokenPipeError:  # its reader has closed it, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (SandboxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
