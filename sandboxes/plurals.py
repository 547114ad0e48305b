"""Write a number of things in words."""


def plural(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 task`, `1,200 tasks`. plural: of a noun that needs more than an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
