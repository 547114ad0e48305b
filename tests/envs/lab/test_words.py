"""The words of practice tasks."""

from envs.lab.words import ACTIONS, ENDINGS, WORDS


def test_words_need_no_quotes_in_a_shell_and_stand_once():
    for words in (WORDS, ACTIONS, ENDINGS):
        assert len(set(words)) == len(words)
        assert all(word.isalnum() and word.islower() for word in words)
