"""This process's limits."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

ENOUGH_FILES = 65_536
"""Each rollout holds some four descriptors: connections to inference servers, its sandbox, the verifier's."""


def raise_open_files() -> None:
    """Raise the soft limit of open files as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS allows less than it says
        logger.warning("only %d files can be open at the same time (%s); raise it with `ulimit -n`", soft, error)
