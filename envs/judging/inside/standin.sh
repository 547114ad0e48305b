#!/bin/sh
# Stands in PATH under the names of what test.sh calls to install or to fetch. It succeeds where the image has what is asked
# for, in whatever version. Elsewhere the program itself is called, or where there is no network, it is said what is lacking.
name=${0##*/}
PATH=$(printf %s "$PATH" | sed 's#/verifier/bin:*##g')
there() { echo "$name: the image has it already: $*"; exit 0; }
lacks() { echo "$name: there is no network, and the image has no $*" | tee -a /verifier/lacking >&2; exit 1; }
offline() {
    routes=0
    [ ! -r /proc/net/route ] || while read -r _; do routes=$((routes + 1)); done < /proc/net/route
    [ $routes -le 1 ]
}
reporting() { export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}/verifier/uv"; } # uv's own environments report, too
really() { # the program itself
    command -v "$name" > /dev/null || { echo "$name: command not found" >&2; exit 127; }
    case $name in uv*) reporting ;; esac
    exec "$name" "$@"
}
# The Python of an environment that has been activated, else the image's.
python=$VIRTUAL_ENV/bin/python
[ "$VIRTUAL_ENV" ] && [ -x "$python" ] || python=$(command -v python3 || command -v python)
absent() { "$python" /verifier/installed.py "$@"; }
has_programs() {
    for program; do
        case $program in -* | *=) continue ;; esac
        program=${program%%=*}
        [ -x "/verifier/bin/$program" ] || command -v "$program" || dpkg-query -W "$program" || apk info -e "$program" || return 1
    done > /dev/null 2>&1
}
# Installs packages by their names: `packages VERB... NAME...`.
packages() {
    missing=$(absent "$@") || return 1 # something else is asked for
    [ "$missing" ] || there "$@"
    ! offline || lacks "$missing"
}

case $name in
    apt | apt-get | apk | dnf | yum)
        for verb; do case $verb in -*) ;; *) break ;; esac; done
        case $verb in
            update | upgrade | clean | autoremove) ! offline || there "$verb" ;;
            install | add)
                wanted=
                for word; do case $word in -* | install | add | /* | ./*) ;; *) wanted="$wanted $word" ;; esac; done
                # shellcheck disable=SC2086 # they are words
                if [ "$wanted" ]; then
                    ! has_programs $wanted || there "$wanted"
                    ! offline || lacks "$wanted"
                fi ;;
        esac
        really "$@" ;;
    curl | wget)
        output=
        fetched=
        for word; do
            [ "$output" != next ] || { output=$word; continue; }
            case $word in
                -o | --output | -O*) [ "$name $word" = "curl -O" ] || output=next ;;
                http*://astral.sh/uv/* | http*://astral.sh/uv | http*astral-sh/uv/releases/*) fetched=$word ;;
            esac
        done
        [ "$fetched" ] || really "$@"
        if ! offline && program=$(command -v "$name") && "$program" "$@"; then exit 0; fi # a network may not reach it
        case $output in "" | next | -) ;; *) : > "$output" ;; esac
        mkdir -p "$HOME/.local/bin" && : > "$HOME/.local/bin/env" # which the installer leaves to be sourced
        exit 0 ;;
    pip | pip3)
        [ "$1" != install ] || packages "$@"
        offline || exec "$python" -m pip "$@"
        case $1 in
            install | wheel) # of a folder: by what the image has, beside the system's own
                verb=$1
                shift
                export PIP_BREAK_SYSTEM_PACKAGES=1
                exec "$python" -m pip "$verb" --no-build-isolation "$@" ;;
        esac
        exec "$python" -m pip "$@" ;;
esac

# uv, uvx
needs() { # the packages are there; returns where a network may have them
    missing=$(absent --with "$1")
    [ -z "$missing" ] || { ! offline || lacks "$missing"; return 1; }
}
runs() { # by the image's Python; returns as `needs`
    case "$name $1" in "uv tool") shift 2 ;; "uv run") shift ;; esac
    while [ "$1" != "${1#-}" ]; do
        case $1 in - | -m | --module) break ;; esac
        option=$1
        shift
        case $option in
            -w | --with) needs "$1" || return; shift ;;
            --with=*) needs "${option#*=}" || return ;;
            --directory) cd "$1" || exit 2; shift ;;
            --*=*) ;;
            -p | -f | -i | -c | -b | --python | --from | --with-* | --extra | --*group | --project | --env-file | --*index* | \
                --find-links | --package | --refresh-package | --resolution | --prerelease | --config-file | --cache-dir | \
                --link-mode | --color | --constraints | --overrides | --exclude-newer | --python-platform) shift ;;
            --) break ;;
        esac
    done
    [ "$VIRTUAL_ENV" ] || [ ! -x .venv/bin/python ] || { python=$PWD/.venv/bin/python; reporting; }
    case $1 in
        "") exit 0 ;;
        -m | --module) shift; exec "$python" -m "$@" ;;
        pytest | py.test) needs pytest || return; shift; exec "$python" -m pytest "$@" ;;
        python*) shift; exec "$python" "$@" ;;
        - | *.py) exec "$python" "$@" ;;
    esac
    program=${python%/*}/$1
    [ -x "$program" ] || program=$(command -v "$1") || { ! offline || lacks "$1"; return 1; }
    shift
    exec "$program" "$@"
}
case "$name $1 $2" in
    "uv pip install" | "uv add"* | "uv tool install")
        packages "$@"
        if [ "$1" != pip ] || ! offline; then really "$@"; fi
        shift 2
        export PIP_BREAK_SYSTEM_PACKAGES=1
        exec "$python" -m pip install --no-build-isolation "$@" ;;
    "uvx "* | "uv run "* | "uv tool run") runs "$@" ;;
    "uv venv"*)
        shift
        folder=.venv
        for word; do case $word in -*) ;; [0-9]*) ;; *) folder=$word ;; esac; done
        exec "$python" -m venv --without-pip "$folder" ;;
    "uv init"*) # `uv add` of what the image lacks needs the project
        if ! offline && command -v uv > /dev/null; then exec uv "$@"; fi
        exit 0 ;;
    "uv python "* | "uv cache "* | "uv self "* | "uv sync"* | "uv lock"*) exit 0 ;;
esac
really "$@"
