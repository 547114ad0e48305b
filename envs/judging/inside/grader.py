"""Run a grader of the task's as root, so that nothing of the working directory is run in its process.

`grader.py KIND FILE ARGS...`, as supervise.py calls it; KIND: "script", "module" whose name FILE is, or "code" or
"stdin" whose source FILE holds. The grader may read what was judged. It can import none of it, load no library of it,
run no source and no pickle that it read there: the directory is left out of every import path, and an audit hook
(Python 3.8 and newer) ends what would run it.
"""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
_PLAIN = (
    "builtins",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "pathlib",
    "uuid",
    "numpy",
    "pandas",
    "copyreg",
)
_HARMFUL = frozenset({"eval", "exec", "compile", "open", "getattr", "setattr", "__import__", "breakpoint", "input"})


class Guard:
    """What keeps judged code out of root's process. tree: the working directory."""

    def __init__(self, tree):
        self.tree = os.path.realpath(tree)
        self.read = []
        self.suspect = None

    def inside(self, path):
        try:
            path = os.path.realpath(os.fsdecode(path) or ".")
        except (TypeError, ValueError):
            return False
        return path == self.tree or path.startswith(self.tree + "/")

    def install(self):
        sys.path[:] = [part for part in sys.path if part not in ("", ".", HERE) and not self.inside(part)]
        sys.path_hooks.insert(0, self.hook)
        sys.path_importer_cache.clear()
        if hasattr(sys, "addaudithook"):
            sys.addaudithook(self.audit)

    def hook(self, path):
        """Find nothing in a folder of the working directory."""
        if not self.inside(path):
            raise ImportError
        return Nothing()

    def audit(self, event, args):
        if event == "open":
            if isinstance(args[0], (str, bytes)) and self.inside(args[0]) and len(self.read) < 1000:
                self.read.append(args[0])
            keep_archives_in_place(sys.modules.get("tarfile"))
        elif event == "compile":
            self.suspect = args[1] if self.is_judged_source(*args[:2]) else None
        elif event == "exec":
            name = args[0].co_filename
            if self.inside_file(name) or (name == self.suspect and args[0].co_names):
                self.refuse("source")
        elif event in ("marshal.loads", "marshal.load"):
            if self.read and (not args or self.is_judged_source(args[0], None)):
                self.refuse("bytecode")
        elif event == "ctypes.dlopen":
            if args[0] and "/" in os.fsdecode(args[0]) and self.inside(args[0]):
                self.refuse("library")
        elif event == "import":
            if len(args) > 1 and args[1] and self.inside(args[1]):
                self.refuse("module")
        elif event == "pickle.find_class":
            if self.read and (str(args[0]).split(".")[0] not in _PLAIN or args[1] in _HARMFUL):
                self.refuse("pickle")

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
                with open(path, "rb") as file:
                    found = found or source.strip() in file.read()
            except OSError:
                pass
        self.read = paths
        return found

    def refuse(self, what):
        raise PermissionError(
            "the grader runs as root, so it may run no %s of the working directory, which is judged; see docs/reward.md"
            % what
        )


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
    Guard(os.readlink(HERE + "/workdir")).install()
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
