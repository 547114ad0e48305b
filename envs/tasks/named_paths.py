"""Find the files outside of the working directory named in a task's tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from envs.judging.path_rules import refusal

MOST = 20
"""The most paths taken from tests; beyond it the names are routes and examples."""
_TEXTS = frozenset({".py", ".sh", ".bats", ".js", ".ts", ".rb", ".pl", ".json", ".toml", ".yaml", ".yml", ""})
_MAX_BYTES = 2**20
_PATH = re.compile(r"(?<![\w./:~$}@%-])/[A-Za-z0-9_.][A-Za-z0-9_.+@/-]*")
_HOME = re.compile(r"(?<![\w~/.$\\])(?:~|\$HOME|\$\{HOME\})(?=/)")
_BELOW_HOME = re.compile(r"(?:pathlib\.)?\bPath\.home\(\)\s*/\s*((?:['\"][\w.@+/-]+['\"]\s*/?\s*)+)")
_GIT = re.compile(
    r"\bgit['\",\s(\[]+(?:-C\b|-c\b|log|show|rev-parse|rev-list|branch|status|cat-file|tag|for-each-ref|diff|reflog|stash"
    r"|ls-files|ls-tree|merge-base|fsck|remote|config)\b|\.git\b/?['\"/]|\bgit\.Repo\b"
)
_TOP = frozenset(
    {"bin", "boot", "etc", "home", "lib", "lib64", "logs", "media", "mnt", "opt", "root", "run", "sbin", "srv", "tmp"}
    | {"usr", "var"}
)
"""Folders of every machine: no test is about their whole content."""
_SHARED = (
    *("/bin/", "/sbin/", "/lib/", "/lib64/", "/logs/", "/run/", "/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/share/"),
    *("/verifier", "/root/.local/", "/root/.cargo/"),
)
_FOLDERS = frozenset({"/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/local/share", "/usr/lib", "/usr/bin"}) | {
    *("/usr/share", "/usr/sbin", "/usr/include", "/var/lib", "/var/log", "/var/cache", "/var/tmp", "/var/run"),
    *("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/home/user"),
}


def named_paths(folders: Iterable[Path], home: str = "/root") -> tuple[str, ...]:
    """Return the absolute paths named in the files of test folders, and ".git" if they ask git. home: of their user.

    Paths present on every machine, and programs of the system, are left out; so are all if there are more than
    `MOST`.
    """
    found: dict[str, None] = {}
    git = False
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in _TEXTS or not path.is_file() or path.stat().st_size > _MAX_BYTES:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            git = git or _GIT.search(text) is not None
            text = _BELOW_HOME.sub(lambda found: f"{home}/" + re.sub(r"['\"\s]", "", found[1]) + " ", text)
            for name in _PATH.findall(_HOME.sub(home, text)):
                plain = name.rstrip("./-")
                if plain and _is_task_path(plain):
                    found[plain] = None
    # What lies in another that is named comes with it.
    paths = [path for path in found if not any(str(parent) in found for parent in PurePosixPath(path).parents)]
    return (*(paths if len(paths) <= MOST else ()), *([".git"] if git else []))


def _is_task_path(path: str) -> bool:
    if refusal(path) is not None or path in _FOLDERS or path.startswith(_SHARED):
        return False
    return "/" in path[1:] or path[1:] not in _TOP
