#!/bin/sh
# Sourced by wrapper.sh: what test.sh calls to install or fetch what the image has already. It succeeds then, and only
# then, without a network; anything else goes to the program itself.
# shellcheck disable=SC2154 # the names are wrapper.sh's
there() { echo "$name: the image has it already: $*"; exit 0; }
offline() {
    routes=0
    while read -r _; do routes=$((routes + 1)); done < /proc/net/route
    [ $routes -le 1 ]
} 2> /dev/null
has_packages() { [ "$default" ] && PYTHONPATH='' "$default" -s -B /verifier/installed.py "$@"; }
# Whether the package of the system or the program is there. Returns 0 for each of the arguments.
has_programs() {
    for program; do
        case $program in -* | *=) continue ;; esac
        program=${program%%=*}
        [ -x "/verifier/bin/$program" ] || [ -x "/usr/bin/$program" ] || [ -x "/usr/local/bin/$program" ] || dpkg-query -W "$program" || apk info -e "$program" || return 1
    done > /dev/null 2>&1
}

case $name in
    apt | apt-get | apk | dnf | yum)
        for verb; do case $verb in -*) ;; *) break ;; esac; done
        case $verb in
            update | upgrade | clean | autoremove) ! offline || there "$verb" ;;
            install | add)
                wanted=
                for word; do case $word in -* | install | add) ;; *) wanted="$wanted $word" ;; esac; done
                # shellcheck disable=SC2086 # they are words
                ! has_programs $wanted || there $wanted ;;
        esac ;;
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
        if [ "$fetched" ] && [ "$default" ] && offline; then
            case $output in "" | next | -) ;; *) : > "$output" ;; esac
            exit 0
        fi ;;
    pip | pip3)
        if [ "$1" = install ] && has_packages "$@"; then there "$@"; fi
        case $1 in
            install | wheel) # of the working directory: by what the image has, beside the system's own
                if offline; then
                    verb=$1
                    shift
                    set -- "$verb" --no-build-isolation "$@"
                    export PIP_BREAK_SYSTEM_PACKAGES=1
                fi ;;
        esac ;;
    uv | uvx)
        case "$name $1 $2" in
            "uv pip install" | "uv add"* | "uv tool install")
                if has_packages "$@"; then there "$@"; fi
                [ "$real" ] || { echo "$name: the image has no uv, and not all of $*" >&2; exit 1; } ;;
        esac ;;
esac
