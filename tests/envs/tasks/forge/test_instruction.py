"""What a forged task tells."""

from forge_samples import forged

from envs.tasks.forge.instruction import write_instruction


def test_the_instruction_tells_what_is_seen_and_documented_and_not_where(library):
    text = write_instruction(forged(library), seed=0)
    assert ">>> assert area(0, 5) == 0\n    assert 5 == 0" in text
    assert "> The area in unit squares; 0 where a side isn't positive." in text
    assert "More text" not in text
    assert "shapes.py" not in text
    assert text == write_instruction(forged(library), seed=0)
