"""Which tests pytest's options and settings choose, of those that it is given.

Runs in the verifier's sandbox, on any Python from 3.6.
"""

import fnmatch
import glob
import os

SETTINGS = ("python_files", "python_classes", "python_functions", "testpaths", "norecursedirs")


class Chosen:
    """What was told of a run's settings before judged code was loaded, by their names. Without a word, pytest's own.

    by_options: whether options choose among the tests in ways that are not looked into, as `-m` does."""

    def __init__(self, told):
        self.by_options = bool(told.get("select"))
        self._files, self._classes, self._functions, self._folders, self._skipped = (told.get(one) for one in SETTINGS)

    def takes_file(self, path, root, whole):
        """Return whether pytest looks into a module that no argument names.

        root: the directory that it is called in. whole: whether its arguments name files or folders."""
        above, name = os.path.split(os.path.relpath(path, root))
        if self._files is not None and not any(fnmatch.fnmatch(name, os.path.basename(one)) for one in self._files):
            return False
        parts = [part for part in above.split("/") if part not in ("", "..")]
        if any(fnmatch.fnmatch(part, os.path.basename(one)) for part in parts for one in self._skipped or ()):
            return False
        places = [found for one in self._folders or () for found in glob.glob(os.path.join(root, one))]
        places = [os.path.realpath(place) for place in places]
        return whole or not places or any(path == place or path.startswith(place + "/") for place in places)

    def takes_test(self, name, cases=()):
        """Return whether pytest takes a function (`name` or `Class::name`) for a test. cases: unittest's classes."""
        *groups, function = name.split("::")
        if groups and groups[0] in cases:
            return len(groups) == 1
        return all(_begins(one, self._classes, "Test") for one in groups) and _begins(function, self._functions, "test")


def _begins(name, settings, default):
    return any(name.startswith(one) or fnmatch.fnmatch(name, one) for one in settings or [default])
