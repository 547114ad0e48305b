"""Names by which an expected value reaches its assert: what is written for them, and whether they do nothing else.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast
import collections
import re

from literals import Names, alterable, constant, dotted, last_name, walk

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
AGAIN = re.compile("xfail|flaky|retry|retries|rerun|repeat|expectedfailure|eventually|tenacity|backoff|poll", re.I)
"""Names of what expects a test to fail, or tries it again."""
_SUPPRESSING = re.compile("suppress|ignor|swallow|expect|attempt|retry|eventually|catch|fail", re.I)
_RAISING = re.compile("raises", re.I)
_ANY_ERROR = ("AssertionError", "Exception", "BaseException", "failureException", "Failed", "exception")
_BY_NAME = frozenset(("locals", "vars", "globals", "eval", "exec", "getfixturevalue"))
_KNOWN_MARKS = ("parametrize", "asyncio", "skip", "skipif", "usefixtures", "filterwarnings", "timeout", "slow", "anyio")
ONCE = ("patch", "object", "dict", "given", "example", "settings", "seed", "freeze_time", "skip", "skipIf", "activate")
ONCE += ("skipUnless", "staticmethod", "override_settings")
"""Decorators that run a test as it is, if at all. Marks do so too."""
_NODE_NAMES = re.compile("snapshot|regression|request|datadir|vcr|cassette|record|golden|benchmark")
_BINDING = FUNCTIONS + (ast.ClassDef, ast.ExceptHandler, ast.arg, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
_BINDING += tuple(getattr(ast, name) for name in ("MatchAs", "MatchStar", "MatchMapping") if hasattr(ast, name))
"""Syntax that binds names, beside names themselves."""
_CHANGING = frozenset(("append", "add", "pop", "remove", "extend", "update", "next"))
_DISPLAYS = (ast.List, ast.Tuple)
_MAKING = frozenset(
    "range enumerate zip sorted reversed list tuple set dict map filter int str float bytes len".split()
)
_MAKING |= frozenset("min max sum chr ord bool frozenset iter abs divmod".split())
_MAKING_MODULES = ("itertools", "string", "math", "random", "decimal.Decimal", "fractions.Fraction", "datetime")
_MAKING_MODULES += ("itertools.product", "itertools.chain", "itertools.permutations", "itertools.combinations")
"""Functions and modules that make of what tests write what they loop over."""


class Binding:
    """What is written for a name, and where it is read: syntax, both. always: the name has no other value."""

    def __init__(self, values, loads, always):
        self.values, self.loads, self.always = values, loads, always


class Inside:
    """What a function speaks of. stores: how often each name is bound. reads: where each is read. words: all names and
    attributes, its own too. returns, yields: whether something in it does, perhaps a function that it makes."""

    def __init__(self, function):
        self.stores, self.reads = collections.Counter(), collections.defaultdict(list)
        self.words, self.written, self.returns, self.yields = {function.name}, [], False, False
        for node in walk(function):
            if isinstance(node, ast.Name):
                self.words.add(node.id)
                if isinstance(node.ctx, ast.Load):
                    self.reads[node.id].append(node)
                    continue
            elif isinstance(node, ast.Attribute):
                self.words.add(node.attr)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.For, ast.AsyncFor)):
                self.written.append(node)
            self.returns = self.returns or isinstance(node, ast.Return)
            self.yields = self.yields or isinstance(node, (ast.Yield, ast.YieldFrom))
            if node is not function:
                for name in stored(node):
                    self.stores[name] += 1


class Bindings:
    """The names of a module. shared: names that other files of the tests speak of. renaming: whether tests may have
    other ids, as they get where parameters are among decoys.

    bends_equality: whether to compare here may be more than to ask `==` of two values, as often as one likes.
    any_context: whether a `with` may be given `raises` or a context that does nothing."""

    def __init__(self, tree, shared=(), renaming=True):
        self.shared, self.renaming = shared, renaming
        self.imported, self.bound, self._last = {}, set(), {}
        self._stores, self._loads = collections.Counter(), collections.defaultdict(list)
        self._functions, self._called = collections.defaultdict(list), collections.defaultdict(list)
        self._inside = {}
        self._texts, self._assigned = set(), collections.defaultdict(list)
        self._survey(tree)
        self.names = Names(self.imported, self.bound)
        self.bends_equality = "addTypeEqualityFunc" in self._called or any(map(_changes, self._functions["__eq__"]))
        contexts = [*self._called, *shared, *(name.split(".")[-1] for name in self.imported.values())]
        self.any_context = "nullcontext" in contexts
        self._lenient = set(_lenient(tree))
        self.quiet = self._quiet(tree)
        self._bindings = []
        self._module(tree)
        self._fixtures(tree)
        for owner, function in outermost(tree):
            self._function(tree, owner, function)
        self._of = {id(load): one for one in self._bindings for load in one.loads}

    def is_literal(self, name):
        """Return whether what the name's node reads is written as a literal."""
        return id(name) in self._of

    def values_of(self, name):
        """Return what is written for the name that a node reads."""
        return self._of[id(name)].values

    def is_always(self, name):
        """Return whether the name has no other values than those."""
        return self._of[id(name)].always

    def writes(self, node, given=()):
        """Return whether an expression is made of what the module writes, and of nothing that may be judged code's.

        given: names that `parametrize` gives."""
        names, known, todo = set(), {"self", "cls", *given}, [node]
        while todo:
            parts = walk(todo.pop())
            own = {name for part in parts for name in stored(part)} | (_MAKING - self.bound)
            for part in parts:
                if isinstance(part, ast.Attribute) and getattr(part.value, "id", "") in ("self", "cls"):
                    names.add(part.attr)
                elif isinstance(part, ast.Name) and self.imported.get(part.id) not in _MAKING_MODULES:
                    names.update({part.id} - own)
            for name in names - known:
                values = [one.value for one in self._assigned[name]]
                if not values or len(values) != self._stores[name] or any(map(_is_bare, values)):
                    return False
                todo += values
            known |= names
        return True

    def inside(self, function):
        """Return what a function speaks of."""
        if id(function) not in self._inside:
            self._inside[id(function)] = Inside(function)
        return self._inside[id(function)]

    def accept(self, compared):
        """Return (ids of the names' nodes, the values' nodes) of the names that are compared alone."""
        good = [one for one in self._bindings if one.loads and all(id(load) in compared for load in one.loads)]
        names = {id(load) for one in good for load in one.loads if self._of[id(load)] is one}
        return names, [value for one in good for value in one.values]

    def defines(self, name):
        """Return whether the module has a function of that name."""
        return name in self._functions

    def is_last(self, function, owner=None):
        """Return whether nothing else has a function's name, in the module or in the class that it is in."""
        if owner is not None:
            return self._stores[owner.name] == self.inside(owner).stores[function.name] == 1
        return len(self._functions[function.name]) == 1 and self._stores[function.name] == 1

    def catches(self, node):
        """Return whether what fails in the body of a `try` or a `with` may go on behind it."""
        return catches_asserts(node, self._lenient)

    # The module

    def _survey(self, tree):
        for node in walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                home = node.module + "." if isinstance(node, ast.ImportFrom) and node.module and not node.level else ""
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    whole = home + (alias.name if alias.asname or home else name)
                    if self.imported.setdefault(name, whole) != whole or (
                        isinstance(node, ast.ImportFrom) and not home
                    ):
                        self.bound.add(name)
            elif isinstance(node, FUNCTIONS):
                self._functions[node.name].append(node)
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", None))
                self._called[called].append(node)
            elif isinstance(node, ast.Attribute):
                self._loads[node.attr].append(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._loads[node.id].append(node)
            elif constant(node) and isinstance(constant(node)[0], str):
                self._texts.add(constant(node)[0])
            for name in stored(node):
                self._stores[name] += 1
            if _assigned(node):
                self._assigned[_assigned(node)].append(node)
        self.bound.update(self._stores)

    def _quiet(self, tree):
        """Return the names of functions that may be handed on, or are called where a failing assert is caught."""
        quiet, inner = set(), {}
        called = {id(call.func) for calls in self._called.values() for call in calls}
        for name in self._functions:
            if any(id(load) not in called for load in self._loads[name]):
                quiet.add(name)
        for node in walk(tree):
            if self.catches(node):
                quiet.update(_calls(ast.Module(node.body, [])))
            elif isinstance(node, FUNCTIONS):
                inner.setdefault(node.name, set()).update(_calls(node))
        quiet &= set(self._functions)
        fresh = quiet
        while fresh:
            fresh = {name for one in fresh for name in inner[one] if name in self._functions} - quiet
            quiet |= fresh
        return {name for name in quiet if not name.startswith("test")}

    def _add(self, values, loads, all_of_them=True, always=True):
        good = [alterable(value, self.names) for value in values]
        if values and (all(good) if all_of_them else any(good)):
            self._bindings.append(Binding(values, loads, always))

    def _module(self, tree):
        """Note constants of the module."""
        for node in tree.body:
            name = _assigned(node)
            if name and self._stores[name] == 1 and name not in self.shared and name not in self._texts:
                loads = [one for one in self._loads[name] if isinstance(one, ast.Name)]
                if len(loads) == len(self._loads[name]):
                    self._add([node.value], loads)

    def _fixtures(self, tree):
        """Note fixtures that return a literal."""
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or not is_fixture(node) or _arguments(node):
                continue
            body = node.body[1:] if constant(getattr(node.body[0], "value", None) or node) else node.body
            plain = len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None
            name = node.name
            takers = [one for _, one in outermost(tree) if name in _arguments(one)]
            if not plain or name in self.shared or name in self._texts or self._stores[name] != 1 + len(takers):
                continue
            loads = [one for taker in takers for one in self.inside(taker).reads[name]]
            if len(loads) == len(self._loads[name]):
                self._add([body[0].value], loads)

    # A function

    def _function(self, tree, owner, function):
        inside = self.inside(function)
        stores, reads = inside.stores, inside.reads
        if inside.words & _BY_NAME:
            return
        for name, values in self._written(inside).items():
            if stores[name] == len(values[0]):
                self._add(values[1], reads[name])
        parameters = [name for name in _arguments(function) if stores[name] == 1]
        given = dict(self._parameters(function, parameters))
        always = bool(given)
        if not given and not function.name.startswith("test") and not function.decorator_list:
            given = self._handed(owner, function, parameters)
            always = not (function.args.defaults or any(function.args.kw_defaults))
        for name, values in given.items():
            self._add(values, reads[name], all_of_them=False, always=always)

    def _written(self, inside):
        """Return where the locals are bound, and to what: {name: ([stores], [values])}, for literals alone."""
        found = collections.defaultdict(lambda: ([], []))
        for node in inside.written:
            name = _assigned(node)
            if name:
                found[name][0].append(node)
                found[name][1].append(node.value)
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                rows = self._rows(node.iter)
                targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
                for i, target in enumerate(targets):
                    if rows and isinstance(target, ast.Name):
                        values = _column(rows, i if len(targets) > 1 else None)
                        found[target.id][0].append(node)
                        found[target.id][1].extend(values)
        return found

    def _parameters(self, function, parameters):
        """Yield what `parametrize` writes for a function's parameters: (name, values)."""
        marks = [one for one in function.decorator_list if "mark" in (dotted(getattr(one, "func", one)) or "")]
        odd = [one for one in function.decorator_list if last_name(one) not in _KNOWN_MARKS + ONCE]
        if not self.renaming or odd or any(_NODE_NAMES.search(name) for name in _arguments(function)):
            return
        for mark in marks:
            if not isinstance(mark, ast.Call) or last_name(mark) != "parametrize":
                continue
            options = {keyword.arg: keyword.value for keyword in mark.keywords}
            ids = options.pop("ids", None)
            if (
                len(mark.args) != 2
                or options
                or not (ids is None or isinstance(ids, _DISPLAYS) or dotted(ids) == "str")
            ):
                continue
            names, rows = _named(mark), self._rows(mark.args[1])
            for i, name in enumerate(names):
                if rows and name in parameters and self._stores[name] and not self._is_taken(name):
                    yield name, _column(rows, i if len(names) > 1 else None)

    def _is_taken(self, name):
        """Return whether a fixture may take a parameter of that name."""
        fixtures = [one for found in self._functions.values() for one in found if is_fixture(one)]
        return name in self.shared or any(name in _arguments(one) for one in fixtures)

    def _handed(self, owner, function, parameters):
        """Return what callers hand to a helper: {name: values}."""
        name, arguments = function.name, _arguments(function)
        method = 1 if owner else 0
        calls = self._called[name]
        form = ast.Attribute if owner else ast.Name
        whole = len(self._functions[name]) == 1 and name not in self.shared and name not in self._texts
        if not whole or name in self.quiet or not calls or function.args.vararg or function.args.kwarg:
            return {}
        if any(not isinstance(call.func, form) or isinstance(arg, ast.Starred) for call in calls for arg in call.args):
            return {}
        if owner and not all(is_own(call.func) for call in calls):
            return {}  # another thing's method of that name
        if any(keyword.arg is None for call in calls for keyword in call.keywords):
            return {}
        found = {}
        for i, parameter in enumerate(arguments[method:]):
            if parameter in parameters:
                values = [call.args[i] for call in calls if i < len(call.args)]
                found[parameter] = values + [
                    keyword.value for call in calls for keyword in call.keywords if keyword.arg == parameter
                ]
        return found

    def _rows(self, node):
        """Return the rows of a table that is written out, in place or for a name that is read here alone."""
        if isinstance(node, ast.Name) and self._stores[node.id] == 1 and len(self._loads[node.id]) == 1:
            written = [one.value for one in self._assigned.get(node.id, ())]
            node = written[0] if written else node
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", "") == "items"
            and isinstance(node.func.value, ast.Dict)
        ):
            pairs = zip(node.func.value.keys, node.func.value.values)
            return [[key, value] for key, value in pairs if key is not None]
        if not isinstance(node, _DISPLAYS):
            return None
        rows = []
        for row in node.elts:
            param = isinstance(row, ast.Call) and last_name(row) == "param"
            rows.append(list(row.args) if param else row)
        return None if any(isinstance(row, ast.Starred) for row in rows) else rows


def _column(rows, i):
    """Return what the rows have at a place; as a whole where i is None."""
    found = []
    for row in rows:
        cells = row if isinstance(row, list) else getattr(row, "elts", ())
        if i is None:
            found.append(row[0] if isinstance(row, list) and row else row)
        elif i < len(cells):
            found.append(cells[i])
    return [one for one in found if isinstance(one, ast.AST)]


def _named(mark):
    """Return the names that a call of `parametrize` gives."""
    named = constant(mark.args[0]) if mark.args else ()
    if named and isinstance(named[0], str):
        return [name.strip() for name in named[0].split(",") if name.strip()]
    return [(constant(one) or ("",))[0] for one in getattr(mark.args[0], "elts", ())] if mark.args else []


def given_names(function):
    """Return the names of a test's parameters that `parametrize` gives."""
    calls = [one for one in function.decorator_list if isinstance(one, ast.Call) and last_name(one) == "parametrize"]
    return {name for call in calls for name in _named(call)}


def outermost(tree):
    """Yield the functions of a module and of its classes: (their class, node)."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield None, node
        elif isinstance(node, ast.ClassDef):
            for _, inner in outermost(node):
                yield node, inner


def is_fixture(function):
    """Return whether a function is a fixture of pytest."""
    return any("fixture" in last_name(one) for one in function.decorator_list)


def stored(node):
    """Return the names that a node itself binds, or speaks of as another scope's."""
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if not isinstance(node, _BINDING):
        return ()
    if isinstance(node, ast.arg):
        return (node.arg,)
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return node.names
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    name = getattr(node, "name", getattr(node, "rest", None))
    return (name,) if name else ()


def catches_asserts(node, lenient=()):
    """Return whether what fails in the body of a `try` or a `with` may go on behind it. lenient: the module's own
    contexts that may see to that."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return any(_lets_fail(item.context_expr) or last_name(item.context_expr) in lenient for item in node.items)
    for handler in getattr(node, "handlers", ()):
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for kind in kinds:
            name = (dotted(kind) or "?").split(".")[-1] if kind is not None else "?"
            if name in _ANY_ERROR or not name.endswith(
                ("Error", "Warning", "Exception", "Exit", "Interrupt", "Iteration")
            ):
                return True
    return False


def _lenient(tree):
    """Yield the names of a module's own contexts in which an assert may fail: generators that catch what is thrown into
    them, and classes, whose `__exit__` may say that all is well."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            ends = [one for one in node.body if isinstance(one, FUNCTIONS) and one.name in ("__exit__", "__aexit__")]
            said = [one.value for end in ends for one in walk(end) if isinstance(one, ast.Return) and one.value]
            if any(constant(value) not in ((None,), (False,)) for value in said):
                yield node.name
        elif isinstance(node, FUNCTIONS) and node.decorator_list:
            tried = [one for one in walk(node) if isinstance(one, ast.Try) and catches_asserts(one)]
            if any(isinstance(one, (ast.Yield, ast.YieldFrom)) for each in tried for one in walk(each)):
                yield node.name


def _lets_fail(context):
    words = " ".join(
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in walk(context)
        if isinstance(one, (ast.Name, ast.Attribute))
    )
    if _RAISING.search(words):
        kinds = context.args[:1] if isinstance(context, ast.Call) else []
        kinds = kinds[0].elts if kinds and isinstance(kinds[0], ast.Tuple) else kinds
        names = [(dotted(kind) or "?").split(".")[-1] for kind in kinds]
        return not names or any(name in _ANY_ERROR or name == "?" for name in names)
    return bool(_SUPPRESSING.search(words) or AGAIN.search(words))


def is_raising(node):
    """Return whether a `with` expects its body to end by an error, or may let it."""
    contexts = [item.context_expr for item in node.items]
    return any(_RAISING.search(ast.dump(one)) or last_name(one) == "ExitStack" or _lets_fail(one) for one in contexts)


def is_own(called):
    """Return whether what is called is a name, or a method of the class that calls it."""
    holder = getattr(called, "value", None)
    named = getattr(holder, "id", getattr(getattr(holder, "func", None), "id", None))
    return isinstance(called, ast.Name) or named in ("self", "cls", "super")


def _changes(function):
    """Return whether a function changes what it didn't make, as far as can be seen."""
    for node in walk(function):
        if isinstance(node, (ast.AugAssign, ast.Global, ast.Nonlocal)):
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return True
    return bool(_calls(function) & _CHANGING)


def _is_bare(value):
    """Return whether a value is a container that is filled later."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and not value.args and not value.keywords
    shown = isinstance(value, _DISPLAYS + (ast.Set,)) and not value.elts
    return shown or (isinstance(value, ast.Dict) and not value.keys)


def _calls(node):
    return {getattr(one.func, "attr", getattr(one.func, "id", None)) for one in walk(node) if isinstance(one, ast.Call)}


def _assigned(node):
    """Return the name to which a statement assigns, and nothing else; None for other nodes."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def _arguments(function):
    args = function.args
    return [one.arg for one in getattr(args, "posonlyargs", []) + args.args + args.kwonlyargs]
