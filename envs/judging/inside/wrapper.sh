#!/bin/sh
# Called under the name of a program that may run judged code. As root and on root's behalf, so that the
# program itself runs as nobody; supervise.py knows what each name needs. A shell, awk and sed may run as root what the
# task itself has written, and nothing else.
# shellcheck disable=SC1091,SC2030,SC2031 # it is there when this runs; a PATH of its own is meant for a subshell
. /verifier/path.sh
unset POSIXLY_CORRECT FUNCNEST # or a bash would ask none of functions.sh
read -r VERIFIER_OWN_CALL < /verifier/own
export VERIFIER_OWN_CALL # what this script itself starts is root's
name=${0##*/}
called=$name
path=
leave_out_wrappers() { [ "$1" = /verifier/bin ] || path=$path:$1; }
each_folder leave_out_wrappers
path=${path#:}
# What this script itself calls is the image's, also where test.sh has put a folder of the tree in front.
given=$PATH
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
case $1 in
    /verifier/call) shift; real=$1; shift ;; # by its path, which is not in PATH
    *) real=$(PATH=$path; [ "$name" = judged ] || command -v "$name") ;;
esac
default=
[ ! -e /verifier/python ] || read -r default < /verifier/python
as_root() {
    export PATH="$path:/verifier/bin"
    exec "$real" "$@"
}
as_judged() { PATH=$given exec /verifier/bin/judged /verifier/call "$real" "$@"; }
case $name in
    bash | sh | dash | ash | ksh | zsh) . /verifier/shells.sh ;;
    awk | gawk | mawk | nawk | sed) . /verifier/scripts.sh ;;
    cp | mv | ln | install) . /verifier/put.sh ;;
    sudo) . /verifier/sudo.sh ;;
    apt | apt-get | apk | dnf | yum | curl | wget | pip | pip3 | uv | uvx) . /verifier/install.sh ;;
esac
case $name in apt | apt-get | apk | dnf | yum | curl | wget) [ -z "$real" ] || as_root "$@" ;; esac
interpreter=$default
case $name in
    judged) [ "$real" ] || { real=$(PATH=$path; command -v "$1"); shift; } ;;
    poetry | pipenv | pdm | hatch | rye | pixi | conda | mamba)
        if [ "$1" = run ]; then
            for argument; do
                shift
                case $argument in
                    pytest | py.test) called=; name=pytest; real=pytest; break ;;
                    python*) called=; name=python3; real=$default; break ;;
                esac
            done
        fi ;;
    uv | uvx) . /verifier/uv.sh ;;
    python*) interpreter=$real ;;
    pytest | py.test | pytest-3 | py.test-3 | coverage)
        read -r line < "$real"
        case $line in '#!/bin/sh'*) ;; '#!/'*) interpreter=${line#??}; interpreter=${interpreter%% *} ;; esac ;;
esac
if [ -z "$real" ]; then
    echo "$name: command not found" >&2
    exit 127
fi
read -r place < /verifier/place
case $interpreter in [!/]*) interpreter=$PWD/$interpreter ;; esac
case $interpreter:$(readlink -f "$interpreter") in
    "$place"/* | *:"$place"/* | */env:*) interpreter=$default ;;
    "$default":*) ;;
    *)
        # One that was made since may be judged code, or load it.
        leads=$(readlink -f "$interpreter")
        [ "$leads" ] && [ -z "$(find "$interpreter" "$leads" -maxdepth 0 -cnewer /verifier/since)" ] || interpreter=$default ;;
esac
case "$name $1 $2" in
    pytest* | py.test* | "python"*" -m pytest")
        if [ "$interpreter" = "$default" ] && [ "$called" ] && [ -p /verifier/request ]; then
            echo $$ > /verifier/request
            read -r status < /verifier/answer
            exit "$status"
        fi ;;
esac
export PATH="$given" JUDGED_PATH="$path" JUDGED_PYTHONPATH="$PYTHONPATH" PYTHONPATH='' PYTHONHASHSEED="${PYTHONHASHSEED:-0}"
exec "$interpreter" -s -B /verifier/supervise.py "$name" "$real" "$@"
