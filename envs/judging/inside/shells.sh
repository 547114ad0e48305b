#!/bin/sh
# Sourced by wrapper.sh: a shell that test.sh starts. It is root's where it runs a script of /tests, or code that stands in one.
# shellcheck disable=SC1091,SC2154 # it is there when this runs, and the names are wrapper.sh's
. /verifier/ours.sh
how=stdin
code=
takes=
for word; do
    if [ "$takes" ]; then takes=; continue; fi
    case $word in
        --rcfile | --init-file) how=judged; break ;;
        --*) ;;
        -*c*[oO]) how=argument; takes=1 ;;
        [-+]*[oO]) takes=1 ;;
        -*c*) how=argument ;;
        -*s*) how=given ;;
        [-+]?*) ;;
        *) code=$word; [ $how != stdin ] || how=script; break ;;
    esac
done
case $how:$code in
    script:/dev/fd/* | script:/dev/stdin | script:/proc/self/fd/*)
        # Whoever else it runs as may not open it.
        how=argument
        opened=$code
        code=$(cat "$opened")
        for word; do
            shift
            case $opened:$word in
                :*) ;;
                *:--) continue ;; # -c is to come before it
                "$word:$word") set -- "$@" -c "$code"; opened= ;;
            esac
            set -- "$@" "$word"
        done
        ! ours stdin "$code" || as_root "$@" ;;
esac
case $how in
    script)
        case $(readlink -f -- "$code") in
            /tests/*)
                original "$code" || { [ -f "$code" ] && ours stdin "$(cat "$code")" && export VERIFIER_OWN_CALL="$VERIFIER_OWN_CALL:read"; } || as_judged "$@"
                as_root "$@" ;;
            "$(readlink /verifier/workdir)"/*) ;;
            *) ! ours script "$code" || { export VERIFIER_OWN_CALL="$VERIFIER_OWN_CALL:read"; as_root "$@"; } ;;
        esac ;;
    argument)
        ours argument "$code" && as_root "$@" ;;
    stdin | given)
        code=$(cat; echo .)
        code=${code%.}
        [ "$code" ] || exit 0
        if ours stdin "$code"; then
            printf %s "$code" | as_root "$@"
        else
            printf %s "$code" | as_judged "$@"
        fi
        exit ;;
esac
as_judged "$@"
