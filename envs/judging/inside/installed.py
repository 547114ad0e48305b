"""Print which packages that a call of pip or uv asks for this Python lacks: `installed.py install NAME...`.

Versions are not compared: without a network there is no other. Ends with 1 where something else than packages is asked
for: a path, an address.
"""

import os
import re
import sys

_VALUED = frozenset(
    "-i --index-url --extra-index-url -f --find-links -c --constraint -t --target -p --python --prefix --root "
    "--timeout --retries --cache-dir --trusted-host --group --break-system-packages=".split()
)
_VERBS = frozenset({"pip", "add", "tool", "install"})
_OURS = frozenset({"uv", "pip", "setuptools", "wheel", "pytest-json-ctrf", "pytest-json-report"})
"""What stands in for itself: see `standin.sh` and `reports`."""


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(args):
    """Return the names of the packages that are asked for; None where something else is: a path, an address."""
    names, rest = [], list(args)
    while rest and rest[0] in _VERBS:
        rest.pop(0)
    while rest:
        arg = rest.pop(0)
        if arg in ("-r", "--requirement", "--requirements"):
            try:
                with open(rest.pop(0)) as file:
                    lines = [line.split("#")[0].strip() for line in file]
            except (OSError, IndexError):
                return None
            more = wanted([line for line in lines if line])
            if more is None:
                return None
            names += more
        elif arg in _VALUED:
            rest[:1] = []
        elif arg in ("-w", "--with", "--from"):
            rest[:0] = rest.pop(0).split(",") if rest else []
        elif arg.startswith(("-e", "--editable")):
            return None
        elif not arg.startswith("-"):
            found = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^]]*\])?\s*(?:[=<>!~;@].*)?$", arg)
            if found is None or os.path.exists(arg) or "://" in arg:
                return None
            names.append(plain(found.group(1)))
    return names


def installed():
    """Return the names of the packages that this Python has."""
    found = set()
    for folder in sys.path:
        try:
            for name in os.listdir(folder or "."):
                match = re.match(r"([\w.-]+?)-\d[^/]*\.(?:dist|egg)-info$|([\w.-]+?)\.(?:dist|egg)-info$", name)
                if match:
                    found.add(plain(match.group(1) or match.group(2)))
        except OSError:
            pass
    return found


if __name__ == "__main__":
    names = wanted(sys.argv[1:])
    if names is None:
        sys.exit(1)
    print(" ".join(sorted(set(names) - installed() - _OURS)))
