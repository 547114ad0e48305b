"""What a call of Python runs: its options, and the module, code or script that follows them."""

_FLAGS = "bBdEhiIOPqRsSuvVx?"
_VALUED = "WX"
_LONG_VALUED = ("--check-hash-based-pycs", "--help-env", "--help-xoptions")


class PythonCall:
    """A call of Python.

    options: what comes before what is run; flags: the letters of those without a value.
    kind: "module", "code", "script" or "stdin". what: the module's name, the code, or the script's path.
    args: what follows. Raises nothing: what Python itself would refuse is left to it.
    """

    def __init__(self, argv):
        self.options, self.flags, self.kind, self.what, self.args = [], set(), "stdin", "", []
        rest = list(argv)
        while rest:
            word = rest[0]
            if word == "-" or not word.startswith("-"):
                self.kind, self.what, self.args = ("stdin", "", rest[1:]) if word == "-" else ("script", word, rest[1:])
                return
            rest = rest[1:]
            if word.startswith("--"):
                self.options.append(word)
                if word in _LONG_VALUED and rest:
                    self.options.append(rest.pop(0))
            elif self._short(word[1:], rest):
                return

    @property
    def safe_path(self):
        """Whether Python leaves the current directory, or the script's, out of the import path."""
        return bool({"I", "P"} & self.flags)

    @property
    def kept(self):
        """The options that change how code runs, and that the watched process is to have too."""
        return [option for option in self.options if option[:2] in ("-W", "-X", "-O", "-R", "-b")]

    def _short(self, letters, rest):
        """Take a word of short options. Return whether what is run comes next."""
        for at, letter in enumerate(letters):
            value = letters[at + 1 :]
            if letter in "cm":
                if not value and rest:
                    value = rest.pop(0)
                self.kind, self.what, self.args = {"c": "code", "m": "module"}[letter], value, rest
                return True
            if letter in _VALUED:
                if not value and rest:
                    value = rest.pop(0)
                self.options.append("-" + letter + value)
                return False
            self.options.append("-" + letter)
            self.flags.add(letter)
        return False
