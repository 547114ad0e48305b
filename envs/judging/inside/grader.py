"""Run a grader of the task's as root, so that nothing of the working directory is run in its process.

`grader.py KIND FILE ARGS...`, as supervise.py calls it; KIND: "script", "module" whose name FILE is, or "code" or
"stdin" whose source FILE holds. The grader may read what was judged. It can import none of it, load no library of it,
run no source and no pickle that it read there: the directory is left out of every import path, and an audit hook
(Python 3.8 and newer) ends what would run it.
"""

import ast
import builtins
import os
import re
import runpy
import stat
import sys

TESTS = "/tests"
HERE = os.path.dirname(os.path.abspath(__file__))
_PLAIN = {
    "collections": ("OrderedDict", "defaultdict", "deque", "Counter", "ChainMap", "UserDict", "UserList", "UserString"),
    "datetime": ("date", "time", "datetime", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "pathlib": ("Path", "PosixPath", "PurePath", "PurePosixPath"),
    "uuid": ("UUID", "SafeUUID"),
    "copyreg": ("_reconstructor", "__newobj__", "__newobj_ex__"),
    "_codecs": ("encode",),
}
"""What pickles of judged code may name, beside the types of `builtins`."""
_PARTS = ("", "core", "_core", "random", "ma", "matrixlib", "dtypes", "_libs", "tseries", "arrays")
_ARRAYS = re.compile(
    r"(?:[A-Z]\w*|_\w+|ndarray|dtype|scalar|new_block|matrix|recarray|record|void|bool_?|longlong|ulonglong|str_|bytes_"
    r"|object_|(?:u?int|float|complex|datetime|timedelta)\d+)\Z"
)
"""What they may name of numpy and pandas: classes, and what puts them together."""
_HEARD = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "socket.connect"}
)
"""Events behind which a grader may be told something by judged code."""
_ATTACH = 24
"""SQLITE_ATTACH, which is asked of VACUUM INTO, too; see sqlite.org/c3ref/c_alter_table.html."""
_ATTACHES = re.compile(r"\b(?:attach|vacuum\s+into)\b[^;\n]*", re.IGNORECASE)
_FILLED = re.compile(r"[?{%:+]")
"""How a statement is written that gets a name later."""
_WORD = r"[\w./:,@%+=-]*"


class Guard:
    """What keeps judged code out of root's process. tree: the working directory. file: the grader's own. source: what
    it holds, where it is gone."""

    def __init__(self, tree, file="", source=b""):
        self.tree, self.file = os.path.realpath(tree), os.path.realpath(file)
        self.read, self.heard = [], False
        self.suspect, self.busy = None, False
        self.own, self.texts, self.patterns = source.decode("utf-8", "replace"), None, []
        self.said = None
        self.since, self.stamp = (time_of(name) for name in ("since", "stamp"))

    def inside(self, path):
        """Return whether a path leads into the tree, or to a file that may be a copy of one there."""
        try:
            path = os.path.realpath(os.fsdecode(path) or ".")
        except (TypeError, ValueError):
            return False
        return path == self.tree or path.startswith(self.tree + "/") or self.is_new(path)

    def is_new(self, path):
        """Return whether a file elsewhere was put there since the sandbox was made."""
        try:
            seen = os.stat(path)
        except OSError:
            return False
        if not stat.S_ISREG(seen.st_mode) or self.since is None or path == self.file or path.startswith(HERE + "/"):
            return False
        if path.startswith(TESTS + "/"):
            return not is_original(seen, self.stamp, self.since) and "/__pycache__/" not in path
        return seen.st_ctime >= self.since.st_ctime

    def install(self):
        sys.path[:] = [part for part in sys.path if part not in ("", ".", HERE) and not self.inside(part)]
        sys.path_hooks.insert(0, self.hook)
        sys.path_importer_cache.clear()
        self.keep_databases_apart()
        if hasattr(sys, "addaudithook"):
            sys.addaudithook(self.audit)

    def hook(self, path):
        """Find nothing in a folder of the working directory."""
        if not self.inside(path):
            raise ImportError
        return Nothing()

    def audit(self, event, args):
        if self.busy:
            return
        if event in _HEARD:
            self.heard = True
            keep_plain(sys.modules.get("yaml.constructor"))
        elif event == "open":
            if isinstance(args[0], (str, bytes)) and self.inside(args[0]) and len(self.read) < 1000:
                self.read.append(args[0])
            keep_archives_in_place(sys.modules.get("tarfile"))
            keep_plain(sys.modules.get("yaml.constructor"))
        elif event == "compile":
            caller = sys._getframe(1).f_code.co_filename
            doubtful = self.is_judged_source(*args[:2]) or (self.is_tasks(caller) and not self.is_written(args[0]))
            self.suspect = args[1] if doubtful else None
        elif event == "exec":
            name = args[0].co_filename
            if self.inside_file(name) or (name == self.suspect and has_names(args[0])):
                self.refuse("source")
        elif event in ("marshal.loads", "marshal.load"):
            if (self.read or self.heard) and (not args or self.is_judged_source(args[0], None)):
                self.refuse("bytecode")
        elif event == "ctypes.dlopen":
            if args[0] and "/" in os.fsdecode(args[0]) and self.inside(args[0]):
                self.refuse("library")
        elif event == "import":
            if len(args) > 1 and args[1] and self.inside(args[1]):
                self.refuse("module")
        elif event == "shutil.copyfile":
            if self.inside(args[0]) and self.is_original_of_task(args[1]):
                raise PermissionError("%s is the task's, and may not be replaced by what is judged" % args[1])
        elif event == "pickle.find_class":
            if (self.read or self.heard) and not is_plain(str(args[0]), str(args[1])):
                self.refuse("pickle")

    def is_original_of_task(self, path):
        """Return whether a file in /tests is as the task has it, and its grader does not itself say that it is to be
        replaced."""
        path = os.path.realpath(os.fsdecode(path))
        try:
            if not path.startswith(TESTS + "/") or not is_original(os.stat(path), self.stamp, self.since):
                return False
        except OSError:
            return False  # it is to be made
        name = os.path.basename(path)
        return not any("cop" in line and name in line for line in self.source().split("\n"))

    def source(self):
        """Return what the grader says, and the task's other programs in Python."""
        if self.said is None:
            self.busy = True
            try:
                self.said = "\n".join([self.own, *task_texts(".py")])
            finally:
                self.busy = False
        return self.said

    def keep_databases_apart(self):
        """Have SQL, which may be judged code's, name no other database, unless the grader does that itself."""
        if "sqlite3" not in self.source():
            return
        import sqlite3

        real = sqlite3.connect

        def connect(*args, **options):
            found = real(*args, **options)
            found.set_authorizer(self.may)
            return found

        sqlite3.connect = sqlite3.dbapi2.connect = connect

    def may(self, action, name, *rest):
        """Return what SQLite is to do where a statement asks for leave: 0 to go on, 1 to refuse."""
        if action != _ATTACH or name in ("", ":memory:"):
            return 0
        written = _ATTACHES.findall(self.source())
        return int(not any(name is None or name in one or _FILLED.search(one) for one in written))

    def inside_file(self, name):
        """Return whether code's name is that of a file there; a grader may name its own code as it likes."""
        return self.inside(name) and os.path.exists(name)

    def is_judged_source(self, source, name):
        """Return whether source was read in the working directory."""
        if isinstance(name, (str, bytes)) and self.inside_file(os.fsdecode(name)):
            return True
        if isinstance(source, str):
            source = source.encode("utf-8", "surrogateescape")
        if not isinstance(source, bytes) or not source.strip() or not self.read:
            return False
        paths, self.read = self.read, []
        found = False
        for path in paths:
            try:
                if os.path.isfile(path):  # a pipe would not end
                    with open(path, "rb") as file:
                        found = found or source.strip() in file.read()
            except OSError:
                pass
        self.read = paths
        return found

    def is_tasks(self, name):
        """Return whether a file's name is that of the grader, or of another file of the task's."""
        return name in ("<string>", "<stdin>") or name.startswith(TESTS + "/")

    def is_written(self, source):
        """Return whether the task itself has written source that the grader compiles, but for words that it puts in."""
        if isinstance(source, str):
            source = source.encode("utf-8", "surrogateescape")
        if not isinstance(source, bytes):
            return not self.read and not self.heard  # a tree
        source = source.decode("utf-8", "replace").strip()
        if self.texts is None:
            self.busy = True
            try:
                self.texts, self.patterns = written(self.own)
            finally:
                self.busy = False
        return any(source in text for text in self.texts) or any(one.match(source) for one in self.patterns)

    def refuse(self, what):
        raise PermissionError(
            "the grader runs as root, so it may run no %s of the working directory, which is judged; see docs/reward.md"
            % what
        )


def time_of(name):
    """Return what a file of the verifier's tells of times; None where it is not there."""
    try:
        return os.stat(os.path.join(HERE, name))
    except OSError:
        return None


def is_original(seen, stamp, since):
    """Return whether a file of /tests is as the task has it (see `processes`)."""
    same = stamp is None or (seen.st_uid == os.geteuid() and seen.st_mtime_ns == stamp.st_mtime_ns)
    return same or seen.st_ctime < since.st_ctime


def has_names(code):
    """Return whether code speaks of anything by a name, also in the functions that it makes."""
    return bool(code.co_names) or any(has_names(one) for one in code.co_consts if isinstance(one, type(code)))


def is_plain(module, name):
    """Return whether a pickle may name that: a type that does nothing when it is made."""
    if module in ("builtins", "__builtin__"):
        return name != "type" and isinstance(getattr(builtins, name, None), type)  # which makes others, equal to all
    library, _, part = module.partition(".")
    if library in ("numpy", "pandas"):
        return part.split(".")[0] in _PARTS and _ARRAYS.match(name) is not None
    return name in _PLAIN.get(module.replace("pathlib._local", "pathlib"), ())


def task_texts(ends=""):
    """Yield what the task has in its files. ends: of their names."""
    stamp, since = time_of("stamp"), time_of("since")
    for folder, _, names in os.walk(TESTS):
        for path in [os.path.join(folder, name) for name in names if name.endswith(ends)]:
            try:
                seen = os.stat(path)
                if stat.S_ISREG(seen.st_mode) and is_original(seen, stamp, since):
                    with open(path, errors="replace") as file:
                        yield file.read(1 << 22)
            except OSError:
                pass


def written(own):
    """Return the texts and strings that the task has in its files, and patterns of those with values in them."""
    texts, patterns = [own, *task_texts()], []
    for text in list(texts):
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError):
            continue
        for node in nodes:
            value = getattr(node, "value", getattr(node, "s", None))
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", getattr(part, "s", None)) for part in node.values]
                pattern = "".join(re.escape(part) if isinstance(part, str) else _WORD for part in parts)
                patterns.append(re.compile(pattern + r"\Z"))
    return texts, patterns


def keep_plain(constructor):
    """Have YAML name nothing that is run, whatever loader the grader takes."""
    kind = getattr(constructor, "UnsafeConstructor", getattr(constructor, "Constructor", None))
    if kind is None or hasattr(kind, "kept_plain"):
        return
    kind.kept_plain = True

    def refuse(self, name, *rest, **options):
        raise PermissionError("%s is run by no YAML that the grader reads; see docs/reward.md" % name)

    kind.find_python_name = kind.find_python_module = refuse


def keep_archives_in_place(tarfile):
    """Have an archive's members written below the folder that it is unpacked in, and nowhere else.

    Pythons that are older than that choice refuse those that are named to the verifier's folders."""
    kind = getattr(tarfile, "TarFile", None)
    if kind is None or hasattr(kind, "kept_in_place"):
        return
    kind.kept_in_place = True
    if hasattr(tarfile, "data_filter"):
        kind.extraction_filter = staticmethod(tarfile.data_filter)
        return
    extract = kind._extract_member

    def within(archive, member, path, *args, **options):
        if os.path.realpath(path).startswith(("/tests/", "/logs/", HERE + "/")):
            raise PermissionError("%s leads out of where the archive is unpacked" % member.name)
        return extract(archive, member, path, *args, **options)

    kind._extract_member = within


class Nothing:
    """A finder that finds nothing."""

    def find_spec(self, name, target=None):
        return None

    def invalidate_caches(self):
        pass


def main(kind, path, args):
    isolated = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    source, name = None, path
    if kind == "script":
        sys.path[:0] = [] if isolated else [os.path.dirname(os.path.realpath(path))]
    elif kind == "module":
        sys.path[:0] = [] if isolated else [os.getcwd()]
    else:
        with open(path, "rb") as file:
            source, name = file.read(), {"code": "<string>", "stdin": "<stdin>"}[kind]
        os.remove(path)
    sys.path += [part for part in os.environ.pop("JUDGED_PYTHONPATH", "").split(":") if part]
    sys.argv = [{"code": "-c", "stdin": "-"}.get(kind, path)] + args
    Guard(os.readlink(HERE + "/workdir"), "" if kind == "module" else path, source or b"").install()
    if kind == "module":
        runpy.run_module(path, run_name="__main__", alter_sys=True)
        return
    if source is None:
        runpy.run_path(path, run_name="__main__")
        return
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
