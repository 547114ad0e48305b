#!/bin/bash
# What bash itself would run as root: a file that `.` or `source` names, and what `eval` is given. Neither may be judged
# code. Of a Python's `activate` in the working directory it does what matters to test.sh.
source() {
    case $(readlink -m -- "$1" 2> /dev/null || readlink -f -- "$1") in
        "$JUDGED_WORKDIR"/*/activate) export VIRTUAL_ENV="${1%/bin/activate}" PATH="$PATH:${1%/activate}" ;;
        "$JUDGED_WORKDIR"/*) _judged "$1" ;;
        */.local/bin/env | */.cargo/env) [ ! -e "$1" ] || builtin source "$@" ;; # what uv's installer would have left
        *)
            if [ -e "$1" ] && { [ ! -f "$1" ] || [ "$(stat -Lc %u -- "$1")" = "${JUDGED_UID:-65534}" ]; }; then
                _judged "$1"
            else
                builtin source "$@"
            fi ;;
    esac
}
# shellcheck disable=SC1090 # whatever test.sh names
.() { source "$@"; }
_judged() {
    echo "$1: test.sh runs this as root, so it can't be judged code; see docs/reward.md" >&2
    return 1
}
_may_eval() {
    local line changed text longest='' called='eval[[:space:]]+"?([$][(]|`)[[:space:]]*([A-Za-z0-9_./-]+)'
    mapfile -s $((BASH_LINENO[1] - 1)) -n 1 line < "${BASH_SOURCE[2]}" 2> /dev/null
    # shellcheck disable=SC2016 # that is what is looked for
    case ${line[0]} in
        *eval*'$('* | *eval*'`'*)
            [[ ${line[0]} =~ $called ]] || return 1
            case ${BASH_REMATCH[2]##*/} in
                conda | mamba | micromamba | opam | ssh-agent | dircolors | brew | pyenv | rbenv | nodenv | goenv | fnm | getopt) ;;
                *) return 1 ;;
            esac ;;
        *)
            while IFS= read -r text; do [ ${#text} -le ${#longest} ] || longest=$text; done <<< "$*"
            [ ${#longest} -ge 10 ] || return 0 # too short to do harm, and found anywhere
            # What stands in quotes in a script of the task's is its own, whoever has written the same.
            case $* in
                *$'\n'* | */logs*) ;;
                *) grep -rqsF -e "\"$*\"" -e "'$*'" /tests && return 0 ;;
            esac
            changed=$(find "$JUDGED_WORKDIR" -type f -cnewer /verifier/since -exec grep -IlF -e "$longest" -- {} + 2> /dev/null)
            [ -z "$changed" ] ;;
    esac
}
eval() {
    if _may_eval "$@"; then builtin eval "$*"; else _judged eval; fi
}
# shellcheck disable=SC2064 # as it was given
trap() {
    case $1 in
        -?*) builtin trap "$@" ;;
        *) if _may_eval "$1"; then builtin trap "$@"; else _judged trap; fi ;;
    esac
}
