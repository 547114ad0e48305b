"""What the parts of a row's worth come to, by a trainer's loss."""

from atropos_agent.types import IGNORED
from envs.delivery.worth import Loss, Turn, token_advantages, token_versions

MASKS = [IGNORED, 1, 2, IGNORED, 3]
TURNS = [Turn(1, 2, 1, policy_version=4, advantage=0.5), Turn(4, 1, 2)]


def test_a_loss_over_rows_gives_each_row_its_share():
    assert token_advantages(MASKS, 2.0, 0.25, TURNS) == [0.0, 0.625, 0.625, 0.0, 0.5]


def test_a_loss_over_tokens_gives_each_token_the_whole():
    assert token_advantages(MASKS, 2.0, 0.25, TURNS, Loss.TOKENS) == [0.0, 2.5, 2.5, 0.0, 2.0]


def test_what_is_not_trained_has_no_advantage_of_its_turn():
    assert token_advantages([IGNORED, IGNORED], 1.0, 1.0, [Turn(0, 2, 1, advantage=1.0)]) == [0.0, 0.0]


def test_a_reply_without_a_version_has_the_oldest_of_its_row():
    assert token_versions(MASKS, TURNS, 3) == [None, 4, 4, None, 3]
