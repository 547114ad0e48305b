#!/bin/bash
# bash runs a file that `.` or `source` names itself, so as root: none of the working directory. Of a Python's `activate`
# there it does what matters to test.sh.
source() {
    case $(readlink -f -- "$1") in
        "$JUDGED_WORKDIR"/*/activate) export VIRTUAL_ENV="${1%/bin/activate}" PATH="$PATH:${1%/activate}" ;;
        "$JUDGED_WORKDIR"/*) echo "$1: test.sh runs this as root, so it can't be judged code; see docs/reward.md" >&2; return 1 ;;
        *) builtin source "$@" ;;
    esac
}
# shellcheck disable=SC1090 # whatever test.sh names
.() { source "$@"; }
