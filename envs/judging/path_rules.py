"""Judged paths outside of the source tree: those that a task may name, and those that stay as the image has them.

In the verifier's sandbox root's own programs run: the shell for test.sh, the Python that watches the tests, git
if test.sh calls it. The files that they load or obey are never carried, whether or not a task names them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from envs.judging.tree import Tree, parents

_CLOSED = ("/proc", "/sys", "/dev", "/tests", "/solution", "/verifier", "/logs/verifier")
_OBEYED = (
    *("/etc/ld.so*", "/etc/passwd*", "/etc/group*", "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/pam*"),
    *("/etc/security/*", "/etc/nsswitch.conf", "/etc/environment", "/etc/profile*", "/etc/bash*", "/etc/python*"),
    *("*/.bashrc", "*/.bash_profile", "*/.bash_login", "*/.bash_aliases", "*/.profile", "*/.zshenv", "*/.zshrc"),
    *("/etc/zsh*", "/etc/ksh*", "/etc/mkshrc", "*/.zprofile", "*/.zlogin", "*/.kshrc", "*/.mkshrc"),
    *("/etc/gitconfig", "*/.gitconfig", "*/.config/git/*", "*/.local/bin/env", "*/.cargo/env", "*/openssl.cnf"),
    *("*/.jq", "*/.magic*", "/etc/magic*", "*/.config/curlrc", "*/.dpkg.cfg", "*/.rpmmacros", "*/.rpmrc", "/etc/rpm/*"),
    *("*/.curlrc", "*/.wgetrc", "/etc/wgetrc", "*/.gdbinit", "*/.config/pip/*", "*/.pip/*", "/etc/pip.conf"),
    *("/etc/apt/*", "/etc/dpkg/*", "/etc/perl/*", "/usr/local/share/perl/*"),
    *(f"*/{name}{end}" for name in ("sitecustomize", "usercustomize") for end in ("", ".*")),
)
"""Files that the loader, libraries, shells, login programs, git and test.sh's common commands obey, or test.sh
sources, and all that is in folders of these names."""
_IS_OBEYED = re.compile("|".join(fnmatch.translate(name + end) for name in _OBEYED for end in ("", "/*"))).match
_CONTAINERS = frozenset({"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"})
"""Files that Docker mounts into each container, and in each with other contents: they can't be replaced."""
_PROGRAMS = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_WATCHERS = (
    *("pytest", "_pytest", "py", "py.py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli"),
    *("attr", "attrs", "typing_extensions.py", "importlib_metadata", "zipp", "zipp.py", "colorama", "argcomplete"),
    *("pkg_resources", "setuptools", "_distutils_hack", "apport_python_hook.py"),
)
"""Python packages that the watching Python imports, or would import if they existed."""
_GIT_OBEYS = ("config", "config.worktree", "commondir", "gitdir", "hooks")


def refusal(path: str) -> str | None:
    """Return why a path can't be judged, in words that go on from its name; None if it can."""
    pure = PurePosixPath(path)
    if ".." in pure.parts or not path.strip():
        return "must be a path without '..'"
    if str(pure) in ("/", "/logs") or any(pure.is_relative_to(closed) for closed in _CLOSED):
        return "can't be judged: it is the verifier's own, or the whole machine; name the files that the tests look at"
    return None


def stays(path: str, start: bool, *, gone: bool = False) -> bool:
    """Return whether a change outside of the source tree is not carried.

    path: absolute. start: whether the image has something there. gone: the change removes it.
    Programs and libraries may be added, but the image's own stay: root runs them. A file that programs obey may be
    removed: its absence tells them nothing.
    """
    if path in _CONTAINERS or (not gone and _IS_OBEYED(path)):
        return True
    parts = path.split("/")[1:]
    packages = max((at for at, part in enumerate(parts) if part in _PACKAGES), default=None)
    if packages is not None:
        return parts[packages + 1 : packages + 2] != [] and parts[packages + 1] in _WATCHERS
    return start and not _PROGRAMS.isdisjoint(parts[:-1])


def obeyed_by_git(tree: Tree, start: Tree) -> set[str]:
    """Return the paths in a git directory that make git run programs, or another directory its own."""
    every: Mapping[str, object] = {**start, **tree}
    found = set()
    for path in every:
        for folder in ("", *parents(path)):
            name = path.removeprefix(folder + "/") if folder else path
            if name.partition("/")[0] in _GIT_OBEYS and _is_git(every, folder):
                found.add(path)
    return found


def _is_git(every: Mapping[str, object], folder: str) -> bool:
    prefix = f"{folder}/" if folder else ""
    return folder.rpartition("/")[2] == ".git" or all(prefix + name in every for name in ("HEAD", "objects", "refs"))
