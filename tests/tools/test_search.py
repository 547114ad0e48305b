"""Searching: by content and by name, with whatever patterns and names there are."""

import pytest
import pytest_asyncio

from sandboxes.base import ExecResult
from tools import Files, Search, ToolError


@pytest.fixture
def search(sandbox):
    return Search(sandbox)


@pytest_asyncio.fixture(loop_scope="session")
async def tree(sandbox):
    await plant(sandbox)


async def plant(sandbox):
    files = {
        "top.py": "import os\nprint('top')\n",
        "src/a.py": "def f():\n    return 1\n",
        "src/deep/b c.py": "def g():\n    return 2\n",
        "src/notes.txt": "f returns 1\na.b\naxb\n",
        "-n.txt": "dash\n",
        ".git/config": "return\n",
        ".config/app.toml": "hidden = 1\n",
    }
    for path, content in files.items():
        await sandbox.write_file(path, content.encode())
    await sandbox.write_file("src/binary.bin", b"return\0return\n")


async def test_contents_are_found_with_path_and_line(search, tree):
    assert await search.search("return [0-9]") == "src/a.py:2:    return 1\nsrc/deep/b c.py:2:    return 2"


async def test_git_and_binary_files_are_left_out_but_hidden_ones_are_not(search, tree):
    assert "binary" not in await search.search("return")
    assert ".git" not in await search.search("return")
    assert await search.find("config") == "(no names)"
    assert await search.search("hidden") == ".config/app.toml:1:hidden = 1"


async def test_a_cut_line_of_digits_is_no_line_number():
    class Cut:
        workdir = "/"

        async def exec(self, *_, **__):
            output = b"./f:1:one\n[... 9 bytes dropped ...]\n" + b"1" * 5000 + b":" + b"1" * 5000 + b":x\n"
            return ExecResult(0, output, truncated=True)

    assert await Search(Cut()).search("1") == "f:1:one"


async def test_no_match_says_so(search, tree):
    assert await search.search("unheard of") == "(no matches)"
    assert await search.find("*.rs") == "(no names)"


async def test_files_can_be_chosen_by_glob(search, tree):
    assert await search.search("1", include="*.txt") == "src/notes.txt:1:f returns 1"
    assert await search.search("def", include="deep/*.py") == "src/deep/b c.py:1:def g():"


async def test_a_fixed_pattern_is_taken_literally(search, tree):
    assert await search.search("a.b", fixed=True) == "src/notes.txt:2:a.b"
    assert await search.search("a.b") == "src/notes.txt:2:a.b\nsrc/notes.txt:3:axb"
    assert await search.search("f(", fixed=True) == "src/a.py:1:def f():"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("src/a.py", "src/a.py:2:    return 1"),
        ("src/deep", "src/deep/b c.py:2:    return 2"),
        ("src/deep/", "src/deep/b c.py:2:    return 2"),
        ("src/deep/b c.py", "src/deep/b c.py:2:    return 2"),
        ("src/../src/deep", "src/deep/b c.py:2:    return 2"),
    ],
)
async def test_a_path_may_be_a_file_or_a_directory(search, tree, path, found):
    assert await search.search("return [0-9]", path=path) == found


async def test_an_absolute_path_gives_absolute_results(search, tree, sandbox):
    assert await search.find("a.py", path=sandbox.workdir) == f"{sandbox.workdir}/src/a.py"


async def test_a_linked_directory_is_searched(search, tree, sandbox):
    await sandbox.exec("ln -s src linked", cwd=sandbox.workdir)
    assert await search.search("return 1", path="linked") == "linked/a.py:2:    return 1"


@pytest.mark.parametrize("pattern", ["-n", "--help", "-e", "$(touch made)", "`touch made`", "'; touch made; '", "*"])
async def test_no_pattern_is_an_option_or_a_command(search, tree, sandbox, pattern):
    assert await search.search(pattern, fixed=True) == "(no matches)"
    await search.search("x", include=pattern)
    await search.find(pattern)
    assert "made" not in (await sandbox.exec("ls", cwd=sandbox.workdir)).output


async def test_a_path_with_a_dash_is_a_path(search, tree):
    assert await search.search("dash", path="-n.txt") == "-n.txt:1:dash"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "ret(urn"}, "wrong pattern: grep: "),
        ({"pattern": "[a"}, "wrong pattern: grep: "),
        ({"pattern": ""}, "one line"),
        ({"pattern": "a\nb"}, "one line"),
        ({"pattern": r"\d+"}, r"write \[0-9\]"),
        ({"pattern": "a", "path": "nope"}, "no such file or directory: nope"),
        ({"pattern": "a", "path": "nope/nope/nope"}, "no such file or directory: nope/nope/nope"),
        ({"pattern": "a", "path": ""}, "the path is empty"),
        ({"pattern": "a", "include": "*.{c,h}"}, "braces"),
    ],
)
async def test_what_cannot_be_searched_is_refused(search, tree, arguments, expected):
    with pytest.raises(ToolError, match=expected):
        await search.search(**arguments)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("*.txt", "-n.txt\nsrc/notes.txt"),
        ("deep", "src/deep/"),
        ("src/*.txt", "src/notes.txt"),
        ("src/**/*.py", "src/a.py\nsrc/deep/b c.py"),
        ("**/*.py", "src/a.py\nsrc/deep/b c.py\ntop.py"),
        ("./src/a.py", "src/a.py"),
        ("b c.py", "src/deep/b c.py"),
    ],
)
async def test_names_are_found_by_glob(search, tree, name, found):
    assert await search.find(name) == found


async def test_many_results_are_cut_and_counted(search, sandbox):
    await sandbox.write_file("many.txt", b"hit\n" * 5_000)
    lines = (await search.search("hit")).splitlines()
    assert len(lines) == 101 and lines[-1] == "[100 of 5,000 matches; narrow the search]"


async def test_a_flood_of_results_is_bounded(search, sandbox):
    await sandbox.write_file("flood.txt", (b"hit" + b"x" * 1_000 + b"\n") * 5_000)
    shown = await search.search("hit")
    assert len(shown) < 8_200
    assert "of more than " in shown and "narrow the search" in shown


async def test_a_long_line_is_cut(search, sandbox):
    await sandbox.write_file("wide.js", b"a" * 100_000 + b"needle" + b"b" * 100_000)
    shown = await search.search("needle")
    assert shown.startswith("wide.js:1:aaa") and len(shown) < 400


async def test_text_that_is_not_utf8_is_searched_and_shown_safely(search, sandbox):
    await sandbox.write_file("latin.txt", b"caf\xe9 one\n")
    shown = await search.search("one")
    assert shown == "latin.txt:1:caf\ufffd one"


async def test_a_pipe_does_not_hang_the_search(search, sandbox):
    await sandbox.exec("mkfifo pipe", cwd=sandbox.workdir)
    assert await search.search("x") == "(no matches)"


async def test_busybox_suffices(busybox_sandbox):
    await plant(busybox_sandbox)
    search = Search(busybox_sandbox)
    assert await search.search("return [0-9]") == "src/a.py:2:    return 1\nsrc/deep/b c.py:2:    return 2"
    assert "binary" not in await search.search("return")
    assert await search.search("a.b", fixed=True, include="*.txt") == "src/notes.txt:2:a.b"
    assert await search.find("src/*.py") == "src/a.py\nsrc/deep/b c.py"
    assert await search.find("deep") == "src/deep/"
    assert "src/\nsrc/a.py" in await Files(busybox_sandbox).view(".")
    assert "src/deep/\n" in await Files(busybox_sandbox).view(".")
    with pytest.raises(ToolError, match="wrong pattern: grep: "):
        await search.search("ret(urn")
    with pytest.raises(ToolError, match="no such file"):
        await search.search("a", path="nope")


@pytest.mark.parametrize("missing", ["find", "grep"])
async def test_a_missing_program_is_named(sandbox_without, missing):
    async with sandbox_without(missing) as sandbox:
        with pytest.raises(ToolError, match="lacks find or grep"):
            await Search(sandbox).search("a")


async def test_a_name_cut_in_the_middle_of_a_long_list_is_no_name(search, sandbox):
    await sandbox.exec("mkdir many; cd many; seq -f '%0120.0f' 1 9000 | xargs touch", cwd=sandbox.workdir)
    found = (await search.find("*0*", "many")).splitlines()
    assert {len(line) for line in found[:-1]} == {len("many/") + 120}
