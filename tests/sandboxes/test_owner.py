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

    def test_another_boot_or_start_time_is_dead(self):
        owner = Owner.of_this_process()
        assert replace(owner, boot="another").is_dead()
        assert replace(owner, start="1").is_dead()

    def test_another_host_counts_as_alive(self):
        assert not replace(Owner.of_this_process(), host="another", boot="another").is_dead()

    def test_an_ended_process_is_dead_even_before_it_is_reaped(self):
        pid = os.posix_spawnp("true", ["true"], {})
        owner = replace(Owner.of_this_process(), pid=pid)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead()
        os.waitpid(pid, 0)

    def test_foreign_labels_are_refused(self):
        with pytest.raises(KeyError):
            Owner.from_labels({"other": "label"})
