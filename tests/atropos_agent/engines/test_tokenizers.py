"""Another tokenizer than the server's own is found by one question."""

import pytest

from atropos_agent.engines.tokenizers import TEXT, compare_tokenizers


class Server:
    """Encodes as `encode` does."""

    def __init__(self, encode):
        self.encode = encode

    async def prompt_ids_of(self, text):
        return self.encode(text)


def own(tokenizer):
    return list(tokenizer.encode(TEXT, add_special_tokens=False))


async def test_the_same_tokenizer_does_not_differ(tokenizer):
    assert await compare_tokenizers(Server(lambda text: own(tokenizer)), tokenizer) is None


async def test_a_token_for_the_start_of_a_text_is_no_difference(tokenizer):
    assert await compare_tokenizers(Server(lambda text: [0, *own(tokenizer)]), tokenizer) is None


@pytest.mark.parametrize("change", [lambda ids: [*ids[:3], 7, *ids[4:]], lambda ids: [0, 0, *ids], lambda ids: []])
async def test_a_difference_says_where_it_is(tokenizer, change):
    theirs = change(own(tokenizer))
    found = await compare_tokenizers(Server(lambda text: theirs), tokenizer)
    assert (found.ours, found.theirs) == (own(tokenizer), theirs)
    assert f"{len(found.ours)} ids here and {len(theirs)} there" in found.text
    assert "instead of" in found.text


async def test_the_place_is_the_first_that_differs(tokenizer):
    theirs = [*own(tokenizer)[:3], 7, *own(tokenizer)[4:]]
    assert (await compare_tokenizers(Server(lambda text: theirs), tokenizer)).place == 3
