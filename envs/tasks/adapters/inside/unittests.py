"""Runs the tests of modules by unittest: python3 unittests.py FILE ...

Its test cases, and functions whose names begin with `test`, as sympy's own runner has them: one that is marked as
slow is left out, one that ends in `Skipped` or, as expected, in `XFail` is skipped, a generator yields its tests.
"""

import functools
import importlib
import inspect
import sys
import unittest
from typing import Any, Callable, Iterator, Sequence  # noqa: UP035 - an image's Python may be old


def as_test(function: Callable[[], Any]) -> unittest.FunctionTestCase:
    @functools.wraps(function)
    def run() -> None:
        try:
            if inspect.isgeneratorfunction(function):
                for call, *arguments in function():
                    call(*arguments)
            else:
                function()
        except Exception as error:  # pytest, which has these, is not imported here
            if type(error).__name__ in ("Skipped", "XFail"):
                raise unittest.SkipTest(str(error)) from None
            raise

    return unittest.FunctionTestCase(run)


def tests_of(path: str) -> Iterator[Any]:
    name = path[: -len(".py")].replace("/", ".")
    module = importlib.import_module(name)
    yield unittest.defaultTestLoader.loadTestsFromModule(module)
    for name, value in list(vars(module).items()):
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        if own and name.startswith("test") and not getattr(value, "_slow", False):
            yield as_test(value)


def main(paths: Sequence[str]) -> int:
    suite = unittest.TestSuite(test for path in paths for test in tests_of(path))
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.path.insert(0, ".")
    sys.exit(main(sys.argv[1:]))
