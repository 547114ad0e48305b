"""How users name Docker hosts."""

from pathlib import Path

import pytest

from sandboxes.fleet import Host, read_hosts


def test_addresses_stand_on_one_line():
    assert read_hosts("ssh://a,unix:///run/docker.sock, tcp://127.0.0.1:2375") == [
        Host("ssh://a"),
        Host("unix:///run/docker.sock"),
        Host("tcp://127.0.0.1:2375"),
    ]


def test_a_file_says_more_of_each(tmp_path):
    (tmp_path / "c").mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / "c" / name).touch()
    path = tmp_path / "hosts.yaml"
    path.write_text("- ssh://me@a:2222\n- {url: 'tcp://b:2376', certificates: c, capacity: 40}\n")
    assert read_hosts(str(path)) == [Host("ssh://me@a:2222"), Host("tcp://b:2376", 40, tmp_path / "c")]


@pytest.mark.parametrize(
    "text, said",
    [
        ("http://a", r"'http://a' must begin with unix://, ssh://, tcp://"),
        ("ssh://a,ssh://a", "ssh://a is named twice"),
        ("tcp://b:2375", "would be root for whoever is on the way"),
        ("no-such.yaml", r"neither addresses such as ssh://a,ssh://b nor a YAML file"),
        ("- {url: 'ssh://a', capacity: 0}", "capacity of ssh://a must be a number of sandboxes, not 0"),
        ("- {url: 'ssh://a', capacity: many}", "must be a number of sandboxes, not 'many'"),
        ("- {url: 'ssh://a', room: 3}", "room: there is no such field; a host has url, capacity, certificates"),
        ("- {capacity: 3}", "has no url"),
        ("- {url: 'tcp://b:2376', certificates: nowhere}", r"lacks ca\.pem, cert\.pem, key\.pem"),
        ("ssh://a", "must hold a list"),
        ("- [", "nor a YAML file"),
    ],
)
def test_what_can_not_be_meant_is_told(tmp_path: Path, text, said):
    if text.startswith("- ") or said == "must hold a list":
        path = tmp_path / "hosts.yaml"
        path.write_text(text)
        text = str(path)
    with pytest.raises(ValueError, match=said):
        read_hosts(text)
