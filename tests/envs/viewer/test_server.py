"""The server: it answers on the socket that it is given, and ends when it is asked to."""

import shutil
import threading

import httpx

from envs.viewer.door import address, listen
from envs.viewer.index import FILE_NAME
from envs.viewer.runs import open_runs
from envs.viewer.server import serve


def test_it_answers_indexes_while_somebody_looks_and_ends(run_dir, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns(f"{FILE_NAME}*"))
    servers = []
    listening = listen("127.0.0.1", 0)
    runs = open_runs([copy])
    thread = threading.Thread(target=serve, args=(runs, listening, "KEY", servers.append))
    thread.start()
    try:
        with httpx.Client(timeout=30) as http:
            while "r-0-0" not in http.get(address(listening, "KEY") + "0/rollout/r-0-0", follow_redirects=True).text:
                pass
    finally:
        servers[0].should_exit = True
        thread.join(120)
    assert not thread.is_alive()
    assert listening.fileno() == -1 or listening.close() is None
