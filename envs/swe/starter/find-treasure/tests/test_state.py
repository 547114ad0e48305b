from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_answer_names_the_file():
    (answer,) = lines("answer.txt")
    assert str(Path("/app", answer.strip()).resolve()) == "/app/rooms/blue/chest/treasure.txt"
