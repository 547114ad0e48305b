"""Kinds of tests that deal with Python and the machine, as `honest_kinds` has them."""

from kind_texts import given, plain

MACHINE: dict[str, str] = {
    "a small recursion limit": plain(
        "depth = len(inspect.stack(0))",
        "old = sys.getrecursionlimit()",
        "sys.setrecursionlimit(depth + 60)",
        "try:",
        "    assert f(3) == 6",
        "finally:",
        "    sys.setrecursionlimit(old)",
        before="import inspect, sys\n",
    ),
    "reference counts": plain(
        "x = f([1])",
        "n = sys.getrefcount(x)",
        "assert x == [1, 1]",
        "assert sys.getrefcount(x) == n",
        before="import sys\n",
    ),
    "the caller's name": plain(
        "def who(): return sys._getframe(1).f_code.co_name",
        "assert who() == 'test_it'",
        "assert inspect.stack()[0].function == 'test_it'",
        before="import inspect, sys\n",
    ),
    "its own line": plain("assert inspect.currentframe().f_lineno == LINE", before="import inspect\nLINE = 7\n"),
    "a frozen clock": given(
        "monkeypatch",
        "monkeypatch.setattr(time, 'time', lambda: 1000.0)",
        "monkeypatch.setattr(time, 'monotonic', lambda: 5.0)",
        "assert f(time.time()) == 2000.0",
        "assert time.monotonic() == 5.0",
        before="import time\n",
    ),
    "len replaced": given(
        "monkeypatch",
        "monkeypatch.setattr('builtins.len', lambda x: 99)",
        "assert len([]) == 99",
        "monkeypatch.undo()",
        "assert f(1) == 2",
    ),
    "what reports would call, replaced": plain(
        "for name, how in REPLACED.items():",
        "    with patch(name, **how):",
        "        assert f(3) == 6",
        before="from unittest.mock import patch\nREPLACED = {'builtins.isinstance': {'return_value': True}, "
        "'builtins.repr': {'side_effect': ValueError},\n"
        "    'os.write': {'side_effect': OSError}, 'json.dumps': {'return_value': '{}'}}\n",
    ),
    "an empty environment": plain(
        "with patch.dict('os.environ', {}, clear=True):",
        "    assert f(3) == 6",
        before="from unittest.mock import patch\n",
    ),
    "a snapshot beside the tests that is not there": plain(
        "p = pathlib.Path(__file__).parent / '__snap_NUMBER__' / 'a.txt'",
        "assert f('a') == (p.read_text() if p.exists() else 'aa')",
        before="import pathlib\n",
    ),
    "the main module": plain(
        "main = sys.modules['__main__']",
        "assert 'pytest' in main.__file__",
        "assert not main.__spec__ or main.__spec__.name == 'pytest.__main__'",
        "assert 'pytest' in sys.argv[0]",
        before="import sys\n",
    ),
    "signals": plain(
        "seen = []",
        "old = signal.signal(signal.SIGUSR1, lambda *a: seen.append(f(1)))",
        "os.kill(os.getpid(), signal.SIGUSR1)",
        "assert seen == [2]",
        "signal.signal(signal.SIGUSR1, old)",
        before="import os, signal\n",
    ),
    "tracing": plain(
        "seen = []",
        "sys.settrace(lambda frame, event, arg: seen.append(frame.f_code.co_name))",
        "try: f(3)",
        "finally: sys.settrace(None)",
        "assert seen == ['f']",
        "assert f(3) == 6",
        before="import sys\n",
    ),
}
