"""`python -m sandboxes setup|reap`: prepare this machine for Docker sandboxes, or tidy up after crashes."""

from __future__ import annotations

import asyncio
import logging
import sys

from sandboxes.arguments import Parser
from sandboxes.base import SandboxError
from sandboxes.docker.daemon import connect, ensure_daemon
from sandboxes.docker.images import ensure_base_image
from sandboxes.docker.reap import reap_dead_owners
from sandboxes.local.backend import reap_dead_directories


async def setup() -> None:
    """Install and start a Docker daemon when none answers, and make the base image when it is missing."""
    print("a Docker daemon answers" if await ensure_daemon() is None else "started a Docker daemon")
    print(f"image {await ensure_base_image()} is present")


async def reap() -> None:
    """Remove the containers, images and directories that dead processes of this machine have left."""
    print(f"removed {await asyncio.to_thread(reap_dead_directories)} directories of dead owners")
    async with connect() as client:
        print(f"removed {await reap_dead_owners(client)} containers and images of dead owners")


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = Parser(prog="python -m sandboxes", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for function in (setup, reap):
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.set_defaults(function=function)
    try:
        asyncio.run(parser.parse_args().function())
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
