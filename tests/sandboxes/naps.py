"""Sleeps of a length that nobody else sleeps, and how many of them there are, by what even the smallest image has."""


def count_of(seconds: int | str) -> str:
    """Return a command that prints how many processes have this number as an argument."""
    text = str(seconds)
    return f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^{text[:-1]}[{text[-1]}]$'"
