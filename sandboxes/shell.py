"""The loop of a session's shell: `docker/executor/session.c` describes its protocol.

It runs in bash, dash and busybox sh, uses builtins alone, so it works when a command has unset PATH, and calls
them by `command`, so it works when a command has defined functions with their names.
"""

from __future__ import annotations

LOOP_VARIABLE = "ATROPOS_LOOP"

# The loop stands in a variable, not among the arguments of a process, so that `pkill -f` with a word of it does
# not find the shell. The last argument is the session's directory.
_SHELL = f'__shell=$(command -v bash || echo sh); exec "$__shell" -c \'eval "${LOOP_VARIABLE}"\' "$__shell" "$1" "$2"'

# What a shell can say about itself so that another one can take its place. bash can list everything, other
# shells no functions. Readonly variables of the shell's own complain when they are restored, and are right.
_SAVE = """
  __whole=
  { case ${BASH_VERSION-} in
      '') command export -p; command set;;
      *) command declare -p; command declare -f; command alias -p;;
    esac
    command printf '__whole=1; umask '; command umask
  } >| "$__dir/state.$__slot"
"""

# The directory of the shell is another one than PWD says: a command has assigned PWD, or the directory is gone.
_FIND_PLACE = """
  command test "$PWD" -ef . || {
    __cwd=$PWD __back=${OLDPWD-}
    command cd . && command test "$PWD" -ef . || {
      command cd -- "$__home" || command cd /
      command printf '[the directory %s is gone; now in %s]\\n' "$__cwd" "$PWD" >&"$__errors"
    }
    OLDPWD=$__back
  }
"""

# A trap on EXIT runs at the end of the command that has set it, as it would in a shell of its own. The list of traps
# begins with it. It goes by way of a file, because a subshell would cost more than all the rest of a short command.
_RUN_EXIT_TRAP = """
  command trap >| "$__dir/traps"
  if command test -s "$__dir/traps"; then
    __text=
    while IFS= command read -r __line; do __text="$__text$__line
"; done <"$__dir/traps"
    command eval "set ${__text#trap}"
    case ${2-} in (EXIT)
      __text=$1
      set --
      command trap - EXIT
      __status
      command eval "$__text" </dev/null >&5 2>&"$__errors" 3<&- 4>&- 5>&- 6>&-;;
    esac
    set --
  fi
"""

LOOP = f"""
unset -v {LOOP_VARIABLE}
__home=$1 __dir=$2 __status=0
__status() {{ return "$__status"; }}
set --
# Nothing of the loop's own prints to the first stream, to which a trap on EXIT speaks when a command exits.
exec 5>&1 6>&2 2>/dev/null
command cd -- "$__home"
# Made now: a command may set an umask that denies everything.
for __slot in state.0 state.1 traps; do command : >>"$__dir/$__slot"; done
while IFS=' ' command read -r __slot __nonce __errors <&3; do
  case $__slot in (-*)
    __whole= __cwd=$__home __back=/
    set -- "$__errors"
    case $__slot in (-?)
      command . "$__dir/state.${{__slot#-}}"
      case $__whole in ('') command . "$__dir/state.$((1 - ${{__slot#-}}))";; esac;;
    esac
    command cd -- "$__cwd" || command printf '[the directory %s is gone; now in %s]\n' "$__cwd" "$PWD" >&"$1"
    set --
    OLDPWD=$__back
    continue;;
  esac
  __text=
  case $__slot in (*+)
    __slot=${{__slot%+}}
    while IFS= command read -r __line <&3; do
      case $__line in ("$__nonce") command break;; esac
      __text="$__text$__line
"
    done;;
  esac
{_FIND_PLACE}
  case $__text in
    '')
      __status
      command . "$__dir/text" </dev/null >&5 2>&"$__errors" 3<&- 4>&- 5>&- 6>&-;;
    *)
      __status
      command eval "$__text" </dev/null >&5 2>&"$__errors" 3<&- 4>&- 5>&- 6>&-;;
  esac
  __status=$?
  set +euvx
{_RUN_EXIT_TRAP}
  command echo "ended $__nonce $__status" >&4
  __cwd=$PWD __back=${{OLDPWD-}}{_SAVE}
done
"""


def session_argv(home: str, directory: str) -> list[str]:
    """Return the command of a session's shell: bash if the image has it, else sh.

    home: the first command's directory; directory: the session's own. Start it in a directory that surely exists.
    """
    return ["/bin/sh", "-c", _SHELL, "sh", home, directory]
