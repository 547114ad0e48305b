"""Whether the maker of a sandbox still lives."""

import os
from dataclasses import replace

import pytest

from sandboxes.owner import Owner


class TestOwner:
    def test_labels_make_the_round_trip(self):
        owner = Owner.of_this_process()
        assert Owner.from_labels(owner.labels()) == owner

    def test_this_process_is_not_dead(self):
        assert not Owner.of_this_process().is_dead()
        assert Owner.of_this_process().is_alive()

    def test_another_start_time_is_dead(self):
        assert replace(Owner.of_this_process(), start="1").is_dead()

    @pytest.mark.parametrize("host", [None, "another"])
    def test_of_another_boot_or_process_namespace_nothing_is_known(self, host):
        owner = Owner.of_this_process()
        boot = owner.space.partition(".")[0]
        for space in ("another.1", f"{boot}.1", "another"):
            other = replace(owner, host=host or owner.host, space=space, start="1")
            assert not other.is_dead()
            assert not other.is_alive()

    def test_an_ended_process_is_dead_even_before_it_is_reaped(self):
        pid = os.posix_spawnp("true", ["true"], {})
        owner = replace(Owner.of_this_process(), pid=pid)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead()
        os.waitpid(pid, 0)

    def test_foreign_labels_are_refused(self):
        with pytest.raises(KeyError):
            Owner.from_labels({"other": "label"})
