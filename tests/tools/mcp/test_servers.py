"""MCP servers as files describe them."""

import importlib.util
import json
import re

import pytest

from sandboxes.installing import install
from tools.mcp.servers import check_installed, read_servers


def write(folder, content):
    path = folder / "servers.json"
    path.write_text(json.dumps(content))
    return path


def test_a_file_of_other_agents_is_read(tmp_path):
    content = {
        "mcpServers": {
            "notes": {"command": "npx", "args": ["-y", "notes"], "env": {"KEY": "${KEY}"}, "alwaysAllow": []},
            "web": {"type": "http", "url": "https://web.example/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        }
    }
    notes, web = read_servers(write(tmp_path, content), {"KEY": "secret"})
    assert (notes.command, notes.env, notes.inside) == (("npx", "-y", "notes"), {"KEY": "secret"}, False)
    assert (web.transport, web.url, web.inside) == ("streamable-http", "https://web.example/mcp", False)
    assert web.headers == {"Authorization": "Bearer secret"} and "secret" not in repr(web)


def test_a_list_as_tasks_have_it_is_read(tmp_path):
    (one,) = read_servers(write(tmp_path, [{"name": "web", "url": "http://127.0.0.1:8000/mcp"}]), {})
    assert (one.name, one.inside) == ("web", False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text", "expected a list of servers"),
        ([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}], "two servers have the name 'a'; rename one"),
        ([{"command": "x"}], "name: Field required"),
        ([{"name": "a", "url": "ftp://x"}], "'ftp://x' is no address of a server"),
        ([{"name": "a", "url": "http://x:abc/mcp"}], "'http://x:abc/mcp' is no address of a server"),
        ({"mcpServers": {"a": "npx notes"}}, "'a' is no server: it is a mapping with a `command` or a `url`"),
        ({"servers": [{"name": "a", "command": "x"}]}, "'servers' is no server"),
        ([{"name": "a", "transport": "sse", "command": "x"}], "a server by sse has a `url`"),
        ([{"name": "a", "command": "x", "url": "http://far.example/mcp"}], "is not in the sandbox"),
        ([{"name": "a", "url": "http://x/${TOKEN}"}], "the environment has no variable TOKEN"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, content, expected):
    with pytest.raises(ValueError, match=r"--env\.mcp_servers .*servers\.json") as caught:
        read_servers(write(tmp_path, content), {})
    assert expected in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_installed(0)
    with pytest.raises(ValueError, match=re.escape(install("mcp"))):
        check_installed(1)
