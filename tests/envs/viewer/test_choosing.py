"""Which rollouts one file is made of."""

import shutil

import pytest

from envs.viewer.choosing import Choice, NothingChosen, choose


@pytest.mark.parametrize(
    ("choice", "ids"),
    [
        (Choice(latest=2), ["e-0", "e-1"]),
        (Choice(best=2, worst=1, step=0), ["r-0-0", "r-0-2", "r-0-3"]),
        (Choice(step=1), ["r-1-0", "r-1-1", "r-1-2", "r-1-3"]),
        (Choice(group=3), ["r-3-0", "r-3-1"]),
        (Choice(ids=["r-0-1", "r-2-3"]), ["r-0-1", "r-2-3"]),
    ],
)
def test_the_latest_the_best_and_worst_of_a_step_a_group_or_those_named(run_dir, choice, ids):
    assert [one.id for one in choose(run_dir, choice)] == ids


def test_where_nothing_was_chosen_it_is_the_latest(run_dir):
    assert len(choose(run_dir, Choice())) == 16
    assert str(Choice()) == "the latest 20"
    assert str(Choice(best=2, step=3)) == "2 with the highest rewards, of the trainer's step 3"


@pytest.mark.parametrize("choice", [Choice(group=99), Choice(step=99), Choice(ids=["nobody"])])
def test_a_choice_that_nothing_fits_is_named(run_dir, choice):
    with pytest.raises(NothingChosen):
        choose(run_dir, choice)


def test_rollouts_that_are_gone_from_the_disk_are_named(run_dir, tmp_path):
    copy = shutil.copytree(run_dir, tmp_path / "run")
    choose(copy, Choice())  # which makes an index of them
    (copy / "rollouts.jsonl").unlink()
    with pytest.raises(NothingChosen, match=r"none of the 16 chosen rollouts can be read; bring its rollouts\.jsonl"):
        choose(copy, Choice())
