#!/bin/sh
# Called under the name of a program that may run judged code. As root and on root's behalf, so that the
# program itself runs as nobody; supervise.py knows what each name needs.
name=${0##*/}
called=$name
rest=$PATH:
path=
while [ -n "$rest" ]; do
    part=${rest%%:*}
    rest=${rest#*:}
    [ "$part" = /judge/bin ] || path=$path:$part
done
path=${path#:}
case $1 in
    /judge/call) shift; real=$1; shift ;; # by its path, which is not in PATH
    *) real=$(PATH=$path; [ "$name" = judged ] || command -v "$name") ;;
esac
default=$(cat /judge/python)
interpreter=$default
case $name in
    judged) [ "$real" ] || { real=$(PATH=$path; command -v "$1"); shift; } ;;
    bash | sh)
        case $1 in -* | /tests/* | "") PATH=$path:/judge/bin; exec "$real" "$@" ;; esac ;;
    uv | uvx)
        called= # by another name than it is run by
        for argument; do
            shift
            case $argument in pytest | py.test) name=pytest; real=pytest; break ;; python*) name=python3; real=$default; break ;; esac
        done
        case $name in uv*) [ -n "$real" ] && exec env JUDGE_CALL=1 "$real" "$@"; exit 0 ;; esac ;;
    python*) interpreter=$real ;;
    pytest | py.test)
        read -r line < "$real"
        case $line in '#!/bin/sh'*) ;; '#!/'*) interpreter=${line#??}; interpreter=${interpreter%% *} ;; esac ;;
esac
if [ -z "$real" ]; then
    echo "$name: command not found" >&2
    exit 127
fi
JUDGE_WORKDIR=${JUDGE_WORKDIR:-$(readlink /judge/workdir)}
case $interpreter in [!/]*) interpreter=$PWD/$interpreter ;; esac
case $interpreter:$(readlink -f "$interpreter") in
    "$JUDGE_WORKDIR"/* | *:"$JUDGE_WORKDIR"/* | */env:*) interpreter=$default ;;
esac
case "$name $1 $2" in
    pytest* | py.test* | "python"*" -m pytest")
        if [ "$interpreter" = "$default" ] && [ "$called" ] && [ -p /judge/request ]; then
            echo $$ > /judge/request
            read -r status < /judge/answer
            exit "$status"
        fi ;;
esac
exec env JUDGE_CALL=1 JUDGE_PATH="$path" JUDGE_PYTHONPATH="$PYTHONPATH" PYTHONPATH= PYTHONHASHSEED="${PYTHONHASHSEED:-0}" \
    "$interpreter" -s -B /judge/supervise.py "$name" "$real" "$@"
