"""Files of the tree that are root's, and that tests write over: judged code asks for them, root's process opens them.

Runs in the verifier's sandbox, on any Python from 3.6; before 3.8 nothing is asked.
"""

import fnmatch
import json
import os
import re
import stat
import sys

from ours import say
from processes import HERE, KEPT, SETTINGS, TESTS, allow, judged_user, open_below, setting, workdir

_PROGRAMS = (".py", ".pyc", ".pth", ".so", ".sh")
_SYSTEM = re.compile("/(bin|boot|dev|etc|lib[^/]*|opt|proc|root|run|sbin|sys|tests|tmp|usr|verifier|logs)/")
_OWNERS = re.compile(r"st_[ug]id|\bget(pw|gr)\w+|\bpw_name|\.(owner|group)\(\)|%[UuGg]\b|\bls -\w*l")
"""How the task's files speak of owners."""
_MOST_FILES, _MOST_BYTES = 200, 64 * 2**20
"""How much of the image's own data is opened: to change a mode copies the file."""


def open_tree():
    """Let judged code add files below the working directory, and write over what the agent left there, as it could when
    root ran it; over the image's own data, too, where they are few. Done once.

    Where the task's files look at modes, those of files stay, and those of folders that are closed to others: what the
    agent left is judged code's own then, but where they look at owners, too."""
    marker = HERE + "/opened"
    if os.path.exists(marker) or os.path.exists(TESTS + "/tests.json"):
        return
    open(marker, "w").close()
    root, of_image, of_agent, opened, held = workdir(), [], [], [], set()
    kept = setting("kept").split("\n")
    modes = os.path.exists(HERE + "/modes")
    since, began = os.stat(HERE + "/since").st_ctime, os.stat(HERE + "/began").st_ctime
    for folder, folders, files in os.walk(root):
        opened.append(folder)
        if ".git" in folders:
            folders.remove(".git")
            _hold(folder, root, held)
        for path in [os.path.join(folder, name) for name in files]:
            try:
                seen = os.lstat(path)
            except OSError:
                continue  # gone
            if not modes and not seen.st_mode & 0o200 and stat.S_ISREG(seen.st_mode):
                os.chmod(path, seen.st_mode & 0o777 | 0o200)  # root need not ask, but who copies it with its mode
            if seen.st_ctime >= began or is_kept(path, root, kept):
                _hold(folder, root, held)
            elif modes and seen.st_ctime > since:
                of_agent.append(path)
            elif modes or seen.st_mode & 0o111:
                pass
            elif seen.st_ctime > since:
                _open_if_data(path, root)
            else:
                of_image.append((path, seen.st_size))
    for folder in opened:
        try:
            if not modes or os.lstat(folder).st_mode & 0o005 == 0o005:
                allow(folder, root, 0o1007 if folder in held else 0o007)
        except OSError:
            pass  # gone, or closed to root
    for path in of_agent if modes and not say(_OWNERS) else ():
        try:
            _make_judged(path)
        except OSError:
            pass  # a link, or in a folder that is closed to judged code
    for path in filter(None, setting("graded").split("\n")):
        try:
            _open_graded(path)
        except OSError:
            pass  # behind a link, or another's
    if len(of_image) <= _MOST_FILES and sum(size for _, size in of_image) <= _MOST_BYTES:
        for path, _ in of_image:
            _open_if_data(path, root)


def _make_judged(path):
    """Put a copy that is judged code's own in the place of a file. Raises OSError. No judged code runs yet."""
    seen, copy = os.lstat(path), "%s.%d" % (path, os.getpid())
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_uid != os.geteuid():
        return
    with open(path, "rb") as file:
        content = file.read()
    os.setegid(judged_user())
    os.seteuid(judged_user())
    try:
        with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), stat.S_IMODE(seen.st_mode))
        os.utime(copy, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    finally:
        os.seteuid(0)
        os.setegid(0)
    os.rename(copy, path)


def _hold(folder, root, held):
    """Note a folder, and those that it is in, of which judged code may not take away what is root's."""
    while folder not in held and len(folder) >= len(root):
        held.add(folder)
        folder = os.path.dirname(folder)


def is_kept(path, root, kept):
    """Return whether a file decides about the work by its name. kept: patterns of what is protected."""
    name, relative = os.path.basename(path), os.path.relpath(path, root)
    return name in SETTINGS | KEPT or any(
        fnmatch.fnmatchcase(text, one) for one in kept if one for text in (name, relative)
    )


def _open_graded(path):
    """Let judged code come to what is judged outside of the working directory; also make files there, and write over
    what is there, but in the system's own folders. Raises OSError."""
    folder, file = (path, None) if os.path.isdir(path) else (os.path.dirname(path), path)
    above = folder
    while above != "/":
        allow(above, "/", 0o001)
        above = os.path.dirname(above)
    if folder == "/" or _SYSTEM.match(folder + "/"):
        return
    allow(folder, "/", 0o007, also=0o1000)
    if file is not None and os.path.isfile(file) and not file.endswith(_PROGRAMS):
        allow(file, "/", 0o006)


def _open_if_data(path, root):
    try:
        open_file(path, root)
    except (OSError, ValueError):
        pass  # no data, or test.sh's


def ask(pipe, answers, root):
    """Have this process ask through a pipe for each file below a folder that it can't write, and have files of which it
    changes mode or times replaced by its own. Called where judged code will run. answers: a pipe that has a byte for
    each question."""
    if not hasattr(sys, "addaudithook"):
        return
    lstat, access, write, read, abspath = os.lstat, os.access, os.write, os.read, os.path.abspath
    fsdecode, dumps, writing, below = os.fsdecode, json.dumps, os.O_WRONLY | os.O_RDWR, root.rstrip("/") + "/"

    def question(kind, path):
        write(pipe, (dumps({"kind": kind, "path": path}) + "\n").encode())
        read(answers, 1)

    def hook(event, args):
        opens = event == "open" and isinstance(args[2], int) and args[2] & writing
        if not opens and event not in ("os.chmod", "os.utime"):
            return
        try:
            path = abspath(fsdecode(args[0]))
            if not path.startswith(below) or lstat(path).st_uid != 0:
                return
            if not access(path, os.W_OK):
                question("write", path)
            if not opens and access(path, os.W_OK):
                with open(path, "rb") as file:
                    content, mode = file.read(), lstat(path).st_mode & 0o775
                question("give", path)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                    file.write(content)
        except (OSError, TypeError, ValueError):
            pass  # it fails as it would have

    sys.addaudithook(hook)


def answerer(answers, root):
    """Return a function that takes a line of what judged code tells, and answers it if it is such a question."""

    def answer(line):
        if b'"kind": "write"' not in line and b'"kind": "give"' not in line:
            return
        try:
            asked = json.loads(line.decode())
            (give_away if asked["kind"] == "give" else open_file)(str(asked.get("path")), root)
        except (OSError, ValueError):
            pass
        try:
            os.write(answers, b".")
        except OSError:
            pass  # it has ended

    return answer


def give_away(path, root):
    """Remove a file that judged code may write over, and is to put its own in place of. Raises as `open_file`."""
    folder, name = os.path.split(path)
    at = open_below(root, folder) if folder != root else os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        seen = os.stat(name, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISREG(seen.st_mode) or not seen.st_mode & 0o002 or seen.st_nlink != 1:
            raise ValueError(path)
        os.unlink(name, dir_fd=at)
    finally:
        os.close(at)


def open_file(path, root):
    """Let judged code write a file that may be the agent's work: no program of the image's, no setting, nothing that is
    protected, and nothing that test.sh has put there. Raises OSError where there is no such file, ValueError where that
    may not be."""
    names = os.path.relpath(path, root).split("/")
    if not os.path.exists(HERE + "/kept") or ".." in names or ".git" in names:
        raise ValueError(path)
    if is_kept(path, root, setting("kept").split("\n")):
        raise ValueError(path)
    number = open_below(root, path)
    try:
        seen = os.fstat(number)
        good = stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_uid == os.geteuid()
        if names[-1].endswith(_PROGRAMS) and seen.st_ctime <= os.stat(HERE + "/since").st_ctime:
            good = False  # the image's
        if not good or seen.st_ctime >= os.stat(HERE + "/began").st_ctime:
            raise ValueError(path)
        os.fchmod(number, seen.st_mode & 0o777 | 0o002)
    finally:
        os.close(number)


if __name__ == "__main__":
    open_tree()
