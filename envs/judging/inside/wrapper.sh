#!/bin/sh
# Called under the name of a program that may run judged code. As root and on root's behalf, so that the
# program itself runs as nobody; supervise.py knows what each name needs.
# shellcheck disable=SC1091 # it is there when this runs
. /verifier/path.sh
name=${0##*/}
called=$name
path=
leave_out_wrappers() { [ "$1" = /verifier/bin ] || path=$path:$1; }
each_folder leave_out_wrappers
path=${path#:}
case $1 in
    /verifier/call) shift; real=$1; shift ;; # by its path, which is not in PATH
    *) real=$(PATH=$path; [ "$name" = judged ] || command -v "$name") ;;
esac
default=$(cat /verifier/python)
interpreter=$default
case $name in
    judged) [ "$real" ] || { real=$(PATH=$path; command -v "$1"); shift; } ;;
    bash | sh)
        case $1 in -* | /tests/* | "") PATH=$path:/verifier/bin; exec "$real" "$@" ;; esac ;;
    uv | uvx)
        called= # by another name than it is run by
        for argument; do
            shift
            case $argument in pytest | py.test) name=pytest; real=pytest; break ;; python*) name=python3; real=$default; break ;; esac
        done
        case $name in uv*) [ -n "$real" ] && exec env VERIFIER_OWN_CALL=1 "$real" "$@"; exit 0 ;; esac ;;
    python*) interpreter=$real ;;
    pytest | py.test)
        read -r line < "$real"
        case $line in '#!/bin/sh'*) ;; '#!/'*) interpreter=${line#??}; interpreter=${interpreter%% *} ;; esac ;;
esac
if [ -z "$real" ]; then
    echo "$name: command not found" >&2
    exit 127
fi
JUDGED_WORKDIR=${JUDGED_WORKDIR:-$(readlink /verifier/workdir)}
case $interpreter in [!/]*) interpreter=$PWD/$interpreter ;; esac
case $interpreter:$(readlink -f "$interpreter") in
    "$JUDGED_WORKDIR"/* | *:"$JUDGED_WORKDIR"/* | */env:*) interpreter=$default ;;
esac
case "$name $1 $2" in
    pytest* | py.test* | "python"*" -m pytest")
        if [ "$interpreter" = "$default" ] && [ "$called" ] && [ -p /verifier/request ]; then
            echo $$ > /verifier/request
            read -r status < /verifier/answer
            exit "$status"
        fi ;;
esac
exec env VERIFIER_OWN_CALL=1 JUDGED_PATH="$path" JUDGED_PYTHONPATH="$PYTHONPATH" PYTHONPATH='' \
    PYTHONHASHSEED="${PYTHONHASHSEED:-0}" "$interpreter" -s -B /verifier/supervise.py "$name" "$real" "$@"
