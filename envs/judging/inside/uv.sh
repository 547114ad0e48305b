#!/bin/sh
# Sourced by wrapper.sh: `uv run`, `uv tool run` and `uvx` run their command by the image's Python, with what the image has.
# shellcheck disable=SC2034,SC2154 # the names are wrapper.sh's
case "$name $1 $2" in
    "uvx "*) ;;
    "uv run "*) shift ;;
    "uv tool run") shift 2 ;;
    "uv venv "* | "uv init "* | "uv python "* | "uv cache "* | "uv self "* | "uv version "* | "uv --version "* | "uv help "*)
        [ ! "$real" ] || as_root "$@"
        exit 0 ;;
    *)
        [ ! "$real" ] || as_judged "$@" # it may build what is judged
        case $1 in sync | lock) exit 0 ;; esac
        echo "uv: command not found" >&2
        exit 127 ;;
esac
needs() { has_packages --with "$1" || { echo "$name: the image has no $1" >&2; exit 1; }; }
while [ "$1" != "${1#-}" ]; do
    case $1 in - | -m | --module) break ;; esac
    option=$1
    shift
    case $option in
        -w | --with) needs "$1"; shift ;;
        --with=*) needs "${option#*=}" ;;
        --directory) cd "$1" || exit 2; shift ;;
        --*=*) ;;
        -p | -f | -i | -c | -b | --python | --from | --with-* | --extra | --*group | --project | --env-file | --*index* | --find-links | \
            --package | --refresh-package | --resolution | --prerelease | --config-file | --cache-dir | --link-mode | --color | \
            --constraints | --overrides | --exclude-newer | --python-platform) shift ;;
        --) break ;;
    esac
done
called= # by another name than it is run by
real=$default
case $1 in
    "") exit 0 ;;
    -m | --module) shift; set -- -m "$@"; name=python3 ;;
    pytest | py.test) shift; name=pytest; real=pytest ;;
    python*) shift; name=python3 ;;
    - | *.py) name=python3 ;;
    *)
        [ ! -x ".venv/bin/$1" ] || { program=.venv/bin/$1; shift; set -- "$program" "$@"; }
        unset VERIFIER_OWN_CALL
        PATH=$given
        exec "$@" ;;
esac
