"""The tool that ends a rollout."""

from tools import Tool, submit


async def test_it_ends_the_rollout_with_its_answer():
    result = await Tool.of(submit)({"answer": "42"})
    assert (result.content, result.done, result.is_error) == ("42", True, False)


async def test_an_answer_need_not_be_given():
    assert (await submit()).content == ""
