"""Stopping a run in good order."""

from envs.running.stopping import Stopping


def test_the_first_signal_waits_for_what_runs_and_the_second_does_not():
    stopping = Stopping()
    stopping.working = True
    assert stopping.ask()
    assert stopping.asked
    assert not stopping.ask()


def test_where_nothing_runs_there_is_nothing_to_wait_for():
    assert not Stopping().ask()
