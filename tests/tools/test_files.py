"""Viewing and editing files: exact edits, and errors that say what to do instead."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stopwatch import Stopwatch

from sandboxes.base import SandboxDied
from tools import Files, ToolError

CODE = "import os\n\n\ndef f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 2\n"


@pytest.fixture
def files(sandbox):
    return Files(sandbox)


@pytest.fixture
def read(sandbox):
    async def read(path):
        return await sandbox.read_file(path)

    return read


async def mode_of(sandbox, path):
    return (await sandbox.exec(["stat", "-c", "%a", "--", path], cwd=sandbox.workdir)).output.strip()


async def test_a_created_file_holds_exactly_its_content(files, read):
    assert await files.create("new/dir/a b.py", CODE) == "created new/dir/a b.py (9 lines)"
    assert await read("new/dir/a b.py") == CODE.encode()


async def test_creating_over_a_file_says_so_and_keeps_its_mode(files, sandbox, read):
    await sandbox.write_file("run.sh", b"old", mode=0o755)
    assert await files.create("run.sh", "new\n") == "overwrote run.sh (1 line)"
    assert await read("run.sh") == b"new\n"
    assert await mode_of(sandbox, "run.sh") == "755"


async def test_an_empty_file_can_be_created_and_overwritten(files, read):
    await files.create("empty", "")
    assert await files.view("empty") == "(empty file)"
    await files.create("empty", "no longer")
    assert await read("empty") == b"no longer"


async def test_a_view_has_line_numbers(files):
    await files.create("a.py", CODE)
    assert (await files.view("a.py")).splitlines()[3] == "4\tdef f(x):"
    assert await files.view("a.py", 4, 5) == "4\tdef f(x):\n5\t    return x + 1"
    assert await files.view("a.py", start=9, end=100) == "9\t    return x + 2"


async def test_absolute_paths_work(files, sandbox):
    await files.create(f"{sandbox.workdir}/a.txt", "one\n")
    assert await files.view(f"{sandbox.workdir}/a.txt") == "1\tone"
    assert "two" in await files.replace(f"{sandbox.workdir}/a.txt", "one", "two")


async def test_a_long_file_is_shown_in_pieces_that_join(files):
    lines = [f"line {n}" for n in range(1, 3001)]
    await files.create("long.txt", "\n".join(lines) + "\n")
    seen, start = [], 1
    while True:
        shown = await files.view("long.txt", start)
        assert len(shown) < 8_100
        *numbered, last = shown.splitlines()
        if not last.startswith("["):
            seen += [*numbered, last]
            break
        seen += numbered
        start = int(last.rpartition("start=")[2].rstrip("]"))
    assert [line.partition("\t")[2] for line in seen] == lines


async def test_a_long_line_is_cut(files):
    await files.create("wide.txt", "x" * 50_000 + "\nshort\n")
    shown = await files.view("wide.txt")
    assert len(shown) < 1_200
    assert "49,000 characters cut" in shown and shown.endswith("2\tshort")


async def test_a_directory_is_listed_two_levels_deep(files):
    for path in ("top.txt", "a/one.txt", "a/b/two.txt", ".hidden/x", "a/.secret", "a/sp ace/z"):
        await files.create(path, "")
    assert await files.view(".") == "a/\na/b/\na/one.txt\na/sp ace/\ntop.txt"
    assert await files.view("a/b") == "two.txt"


async def test_an_empty_and_a_huge_directory_are_listed(files, sandbox):
    await sandbox.exec("mkdir empty huge; cd huge; seq 1 1000 | xargs touch", cwd=sandbox.workdir)
    assert await files.view("empty") == "(empty directory)"
    listing = (await files.view("huge")).splitlines()
    assert len(listing) == 201 and listing[-1] == "[800 more entries]"


async def test_an_incomplete_list_has_no_exact_count_and_no_cut_name(files, sandbox):
    await sandbox.exec("mkdir many; cd many; seq -f '%0120.0f' 1 9000 | xargs touch", cwd=sandbox.workdir)
    listing = (await files.view("many")).splitlines()
    assert {len(line) for line in listing[:-1]} == {120} and listing[-1].startswith("[at least ")


async def test_a_missing_find_is_named(sandbox_without):
    async with sandbox_without("find") as sandbox:
        with pytest.raises(ToolError, match="has no find"):
            await Files(sandbox).view(".")


async def test_a_replacement_shows_the_lines_around_it(files, read):
    await files.create("a.py", CODE)
    shown = await files.replace("a.py", "x + 1", "(\n        x + 3\n    )")
    assert await read("a.py") == CODE.replace("x + 1", "(\n        x + 3\n    )").encode()
    assert "5\t    return (\n6\t        x + 3\n7\t    )\n" in shown
    assert "1\timport" not in shown and "2\t" in shown


async def test_a_text_that_occurs_twice_is_refused_with_its_lines(files, read):
    await files.create("a.py", CODE)
    with pytest.raises(ToolError, match=r"2 times in a\.py, at lines 5, 9; add lines around it"):
        await files.replace("a.py", "    return x +", "")
    await files.create("b", "aaa")
    with pytest.raises(ToolError, match="2 times"):
        await files.replace("b", "aa", "b")
    assert await read("b") == b"aaa"


async def test_a_text_that_differs_only_in_whitespace_is_shown_as_it_is(files):
    await files.create("a.py", CODE)
    with pytest.raises(ToolError) as refused:
        await files.replace("a.py", "def f( x ):\n\treturn x+1", "")
    assert "only the whitespace differs. Lines 4 to 5 are:\n4\tdef f(x):\n5\t    return x + 1" in str(refused.value)


async def test_the_closest_lines_are_shown(files):
    await files.create("a.py", CODE)
    with pytest.raises(ToolError) as refused:
        await files.replace("a.py", "def g(y):\n    return x + 2\n", "")
    assert "Lines 8 to 9 are:\n8\tdef g(x):\n9\t    return x + 2" in str(refused.value)


async def test_line_numbers_copied_from_a_view_are_recognised(files):
    await files.create("a.py", CODE)
    with pytest.raises(ToolError, match=r"leave out the line numbers. Lines 4 to 5"):
        await files.replace("a.py", "4\tdef f(x):\n5\t    return x + 1", "")


async def test_a_text_like_nothing_in_the_file_is_refused_briefly(files):
    await files.create("a.py", CODE)
    with pytest.raises(ToolError, match="nor anything similar; view the file first"):
        await files.replace("a.py", "qqqqqqqqqqqqqqqqqqqq", "")


async def test_the_closest_lines_of_a_large_file_are_found_in_time(files):
    await files.create("large.py", "".join(f"value_{n} = compute({n}, {n * 7})\n" for n in range(50_000)))
    watch = Stopwatch()
    with pytest.raises(ToolError, match="value_1234 = "):
        await files.replace("large.py", "value_1234 = computed(1234, 8638)", "")
    assert watch.seconds < 30, "far less than what each line compared with each takes"


@pytest.mark.parametrize(
    ("old", "new", "expected"), [("", "x", "old is empty"), ("import os", "import os", "old and new are the same")]
)
async def test_pointless_replacements_are_refused(files, old, new, expected):
    await files.create("a.py", CODE)
    with pytest.raises(ToolError, match=expected):
        await files.replace("a.py", old, new)


async def test_deleting_by_an_empty_replacement_works(files, read):
    await files.create("a.py", CODE)
    await files.replace("a.py", "import os\n\n\n", "")
    assert (await read("a.py")).startswith(b"def f")


INSERTIONS = [
    ("a\nb\n", 0, "new", "new\na\nb\n"),
    ("a\nb\n", 1, "new\n", "a\nnew\nb\n"),
    ("a\nb\n", 2, "x\ny", "a\nb\nx\ny\n"),
    ("a\nb", 2, "new\n", "a\nb\nnew"),
    ("", 0, "new", "new\n"),
    ("a\n", 1, "", "a\n\n"),
    ("a\n", 1, "\n\n", "a\n\n\n"),
]


@pytest.mark.parametrize("insertion", INSERTIONS)
async def test_inserting_lines(files, read, insertion):
    before, line, text, after = insertion
    await files.create("a.txt", before)
    await files.insert("a.txt", line, text)
    assert (await read("a.txt")).decode() == after


async def test_inserting_beyond_the_end_is_refused(files):
    await files.create("a.txt", "a\nb\n")
    with pytest.raises(ToolError, match="has 2 lines; line must be from 0 to 2, not 3"):
        await files.insert("a.txt", 3, "x")


async def test_crlf_files_keep_their_line_ends(files, sandbox, read):
    await sandbox.write_file("dos.txt", b"one\r\ntwo\r\nthree\r\n")
    assert await files.view("dos.txt") == "1\tone\n2\ttwo\n3\tthree"
    await files.replace("dos.txt", "one\ntwo", "1\n2")
    await files.insert("dos.txt", 1, "1.5")
    assert await read("dos.txt") == b"1\r\n1.5\r\n2\r\nthree\r\n"


async def test_mixed_line_ends_are_left_alone(files, sandbox, read):
    await sandbox.write_file("mixed.txt", b"one\r\ntwo\nthree\rfour\n")
    await files.replace("mixed.txt", "two", "2")
    assert await read("mixed.txt") == b"one\r\n2\nthree\rfour\n"


async def test_bytes_that_are_not_utf8_survive_an_edit(files, sandbox, read):
    await sandbox.write_file("latin.txt", b"caf\xe9\nplain\n")
    assert await files.view("latin.txt") == "1\tcaf\ufffd\n2\tplain"
    shown = await files.replace("latin.txt", "plain", "päin")
    assert shown.encode()
    assert await read("latin.txt") == b"caf\xe9\n" + "päin\n".encode()


async def test_binary_files_are_refused(files, sandbox):
    await sandbox.write_file("b.bin", b"\x7fELF\0\0\0")
    for attempt in (files.view("b.bin"), files.replace("b.bin", "ELF", "elf"), files.insert("b.bin", 0, "x")):
        with pytest.raises(ToolError, match="binary file of 7 bytes"):
            await attempt


async def test_edits_keep_mode_links_and_inode(files, sandbox, read):
    await sandbox.write_file("real.sh", b"one\n", mode=0o750)
    await sandbox.exec("ln -s real.sh soft; ln real.sh hard", cwd=sandbox.workdir)
    await files.replace("soft", "one", "two")
    assert await read("hard") == b"two\n"
    assert await mode_of(sandbox, "real.sh") == "750"
    assert (await sandbox.exec(["readlink", "soft"], cwd=sandbox.workdir)).output == "real.sh\n"


@pytest.mark.parametrize("name", ["-rf", "a b", "new\nline", "$(touch x)", "'quoted'", "ü", "*", ";ls"])
async def test_a_file_may_have_any_name(files, read, sandbox, name):
    await files.create(name, "one\n")
    await files.replace(name, "one", "two")
    await files.create(name, (await read(name)).decode() + "three\n")
    assert await files.view(name) == "1\ttwo\n2\tthree"
    assert (await sandbox.exec("ls | wc -l", cwd=sandbox.workdir)).output.strip() == ("2" if "\n" in name else "1")


async def test_missing_files_and_wrong_kinds_are_refused(files, sandbox):
    await files.create("dir/file", "x\n")
    refused = {
        "no such file: nope (relative paths start at": files.view("nope"),
        "no such file: /nope/nope": files.view("/nope/nope"),
        "no such file: gone": files.replace("gone", "a", "b"),
        "dir is a directory": files.replace("dir", "a", "b"),
        "dir: ": files.create("dir", "a"),
        "dir/file/below": files.create("dir/file/below", "a"),
        "the path is empty": files.view(""),
        "null": files.create("a\0b", "x"),
        "dir/file has lines 1 to 1; start is 2": files.view("dir/file", 2),
        "start is 0": files.view("dir/file", 0),
        "end is 0": files.view("dir/file", 1, 0),
        "x" * 300: files.view("x" * 300),
    }
    for expected, attempt in refused.items():
        with pytest.raises(ToolError) as refusal:
            await attempt
        assert expected in str(refusal.value)


async def test_what_is_no_regular_file_is_refused(files, sandbox):
    await sandbox.exec("mkfifo pipe", cwd=sandbox.workdir)
    for attempt in (files.view("pipe"), files.replace("pipe", "a", "b"), files.create("pipe", "a")):
        with pytest.raises(ToolError, match="pipe"):
            await attempt


async def test_a_file_that_is_too_large_is_left_to_the_terminal(files, sandbox):
    await sandbox.exec("head -c 20000000 /dev/zero > big", cwd=sandbox.workdir)
    with pytest.raises(ToolError, match=r"larger than .* bytes; use the terminal"):
        await files.view("big")


async def test_a_dead_sandbox_is_not_the_model_s_mistake(sandbox):
    class Dead:
        workdir = "/app"

        async def read_file(self, path, *, max_bytes):
            raise SandboxDied("gone")

    files = Files(Dead())
    for attempt in (files.view("a"), files.create("a", "b"), files.replace("a", "b", "c")):
        with pytest.raises(SandboxDied):
            await attempt


class OneFile:
    """A sandbox that holds one file, for properties of the edits alone."""

    workdir = "/app"

    def __init__(self, data):
        self.data = data

    async def read_file(self, path, *, max_bytes):
        return self.data

    async def exec(self, command, *, cwd, stdin):
        self.data = stdin
        return type("Done", (), {"ok": True})


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=40)
# Few letters, so that texts often occur several times.
SHORT = st.text("ab \n", max_size=12)


@given(before=SHORT, old=SHORT.filter(bool), after=SHORT, new=SHORT, crlf=st.booleans())
def test_a_replacement_of_a_unique_text_changes_nothing_else(before, old, after, new, crlf):
    def encoded(text):
        return (text.replace("\n", "\r\n") if crlf else text).encode()

    whole = before + old + after
    crlf = crlf and "\n" in whole  # else there is nothing to tell it by
    unique = sum(whole.startswith(old, place) for place in range(len(whole))) == 1
    box = OneFile(encoded(whole))
    if unique and old != new:
        asyncio.run(Files(box).replace("a", old, new))
        assert box.data == encoded(before + new + after)
    else:
        with pytest.raises(ToolError):
            asyncio.run(Files(box).replace("a", old, new))
        assert box.data == encoded(whole)


@given(data=st.binary(max_size=60).filter(lambda data: b"\0" not in data), there=TEXT)
def test_replacing_there_and_back_gives_every_byte_back(data, there):
    marked = b"<<mark>>" + data
    box = OneFile(marked)
    there = f"<<{there}>>other"
    try:
        asyncio.run(Files(box).replace("a", "<<mark>>", there))
        asyncio.run(Files(box).replace("a", there, "<<mark>>"))
    except ToolError as refusal:
        assert "times" in str(refusal)
    else:
        assert box.data == marked


@given(content=TEXT, text=TEXT, place=st.integers(0, 50), crlf=st.booleans())
def test_an_insertion_adds_its_lines_and_keeps_the_others(content, text, place, crlf):
    end = "\r\n" if crlf and "\n" in content else "\n"
    lines = content.removesuffix("\n").split("\n") if content else []
    place = min(place, len(lines))
    box = OneFile(content.replace("\n", end).encode())
    asyncio.run(Files(box).insert("a", place, text))
    result = box.data.decode()
    kept = result.removesuffix(end).split(end) if content.endswith("\n") or not content else result.split(end)
    added = text.removesuffix("\n").split("\n")
    assert kept == lines[:place] + added + lines[place:]
