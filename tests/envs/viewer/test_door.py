"""Where the page is found."""

import os
import stat

import pytest

from envs.viewer.door import KEY_FILE, address, key_of, listen


def test_the_key_of_a_run_stays_the_same_and_is_the_owners(tmp_path):
    key = key_of(tmp_path)
    assert len(key) >= 20
    assert key_of(tmp_path) == key
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert key_of(tmp_path / "other") != key


def test_a_key_that_is_none_is_replaced(tmp_path):
    (tmp_path / KEY_FILE).write_text("../../")
    assert key_of(tmp_path) != "../../"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_where_it_can_not_be_kept_each_start_has_its_own(tmp_path):
    tmp_path.chmod(0o500)
    assert key_of(tmp_path) != key_of(tmp_path)


def test_the_address_names_host_port_and_key():
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address(listening, "KEY") == f"http://127.0.0.1:{port}/KEY/"
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", port)
