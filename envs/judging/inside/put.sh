#!/bin/sh
# Sourced by wrapper.sh: cp, mv, ln and install. Where test.sh puts hidden tests into the working directory, nothing that the
# agent made may be in the way: a directory or a link in place of a file, a file in place of a directory. Where they can't be
# put all the same, the agent's own files would be taken for them, so that is told.
# shellcheck disable=SC2015,SC2154,SC3067 # the last of three is for either; the names are wrapper.sh's
workdir=$(readlink /verifier/workdir)
hidden=
target=
last=
sources=
for word; do
    [ "$target" = next ] && { target=$word; continue; }
    case $word in
        -t | --target-directory) target=next ;;
        --target-directory=*) target=${word#*=} ;;
        -?*) ;;
        *)
            last=$word
            case $(readlink -f -- "$word") in /tests | /tests/*) hidden=1 ;; esac
            [ -e "$word" ] || sources=missing ;;
    esac
done
[ -e "$last" ] || [ "$sources" != missing ] || sources=
place=$(readlink -m -- "${target:-$last}" 2> /dev/null) || place=${target:-$last}
# A copy of the tree in /tmp is for what is judged as the tree is: with its modes.
case "$name $place" in
    "cp /tmp/"*)
        for word; do
            case $(readlink -f -- "$word") in
                "$workdir" | "$workdir"/*)
                    [ ! -e /verifier/python ] || "$default" -s -B /verifier/writable.py
                    as_root --preserve=mode "$@" ;;
            esac
        done ;;
esac
case $place in "$workdir" | "$workdir"/*) ;; *) hidden= ;; esac
case $place in
    /logs | /logs/*)
        # Of what judged code has made, and is copied to the logs, no file is a reward.
        made=
        for word; do
            [ -e "$word" ] || continue # the mode of `install -m 644`
            case $(readlink -f -- "$word") in "$workdir" | "$workdir"/*) made=1 ;; esac
            # shellcheck disable=SC3067 # the shells that images have know -O
            [ ! -f "$word" ] || [ -O "$word" ] || made=1
            [ -z "$(find -H "$word" -name 'reward.*' ! -user 0 2> /dev/null)" ] || made=1
        done
        if [ "$made" ]; then
            kept=$(mktemp -d /verifier/kept.XXXXXX)
            for reward in reward.txt reward.json; do
                [ ! -e "/logs/verifier/$reward" ] || /bin/cp "/logs/verifier/$reward" "$kept/$reward"
            done
            PATH=$path:/verifier/bin "$real" "$@"
            status=$?
            for reward in reward.txt reward.json; do
                rm -rf "/logs/verifier/$reward"
                [ ! -e "$kept/$reward" ] || /bin/cp "$kept/$reward" "/logs/verifier/$reward"
            done
            exit $status
        fi ;;
    /tests | /tests/*)
        # What comes there from elsewhere may be judged code's, with the time by which the task's own files are known.
        foreign=
        for word; do case $word in -?*) ;; *) case $(readlink -f -- "$word") in /tests | /tests/*) ;; *) foreign=1 ;; esac ;; esac; done
        if [ "$foreign" ]; then
            kept=$(mktemp -d /verifier/kept.XXXXXX) && /bin/cp -a /tests/. "$kept/"
            : > /verifier/putting
            : > /verifier/ticked
            until [ "$(find /verifier/ticked -cnewer /verifier/putting)" ]; do : > /verifier/ticked; done
            PATH=$path:/verifier/bin "$real" "$@"
            status=$?
            find /tests -cnewer /verifier/putting -user root -exec touch -h {} +
            # The task's own files stay what they were, unless test.sh puts others there by their names.
            # shellcheck disable=SC2020 # each of them ends a command
            called=$(cat /tests/*.sh | tr ';|&' '\n' | grep -E "(^|[[:space:]/({])${name}[[:space:]]")
            (cd "$kept" && find . -type f -user root ! -newer /verifier/stamp) | while IFS= read -r file; do
                [ ! "$kept/$file" -ot /verifier/stamp ] && ! cmp -s "$kept/$file" "/tests/$file" || continue
                case $called in *"${file##*/}"*) continue ;; esac
                [ ! -d "/tests/$file" ] || [ -L "/tests/$file" ] || continue
                rm -f "/tests/$file"
                /bin/cp -a "$kept/$file" "/tests/$file"
            done
            rm -rf "$kept"
            exit $status
        fi ;;
esac
[ "$hidden" ] || as_root "$@"

# Removes what the agent put there since. $1: a path below the working directory.
clear() { [ -z "$(find "$1" -maxdepth 0 -cnewer /verifier/since 2> /dev/null)" ] || rm -rf -- "$1" || /verifier/bin/judged rm -rf -- "$1"; }
# Makes a folder root's, who is handed what the agent has there: whoever owns it may take away what is put into it.
take_over() {
    mv -- "$1" "$1.judged" && mkdir -- "$1" && /bin/cp -r -- "$1.judged/." "$1/" && chmod -R o+rX -- "$1"
    /verifier/bin/judged find "$1.judged" -mindepth 1 -delete
    rmdir -- "$1.judged"
}
# Makes way for a file at $1 and the folders that it is in.
make_way() {
    folder=$1
    theirs=
    read -r judged < /verifier/uid
    while folder=${folder%/*} && [ "$folder" != "$workdir" ] && [ "$folder" ]; do
        [ -d "$folder" ] && [ ! -L "$folder" ] || { [ ! -e "$folder" ] && [ ! -L "$folder" ]; } || clear "$folder"
        [ -O "$folder" ] || [ -z "$(find "$folder" -maxdepth 0 -user "$judged" 2> /dev/null)" ] || theirs=$folder
    done
    [ ! "$theirs" ] || take_over "$theirs"
    [ ! -e "$1" ] && [ ! -L "$1" ] || clear "$1"
}
target=${target:-$last}
case $target in /*) ;; *) target=$PWD/$target ;; esac
for word; do
    case $word in -?*) continue ;; esac
    [ "$word" != "$last" ] && [ -e "$word" ] || continue
    case $last in */) into=1 ;; *) [ -d "$target" ] && into=1 || into= ;; esac
    home=${word%/}
    home=${home##*/}
    if [ -d "$word" ]; then
        case $home in . | "") root=$target ;; *) root=$target; [ -z "$into" ] || root=$target/$home ;; esac
        (cd "$word" && find . -type f) | while IFS= read -r file; do make_way "$root/${file#./}"; done
    elif [ "$into" ]; then
        make_way "${target%/}/$home"
        [ -d "$target" ] || mkdir -p "$target"
    else
        make_way "$target"
    fi
done
PATH=$path:/verifier/bin "$real" "$@"
status=$?
if [ $status = 0 ]; then
    folder=$place/.
    while [ "$name" = mv ] && folder=${folder%/*} && [ "$folder" != "${workdir%/*}" ] && [ "$folder" ]; do
        [ ! -d "$folder" ] || chmod +t -- "$folder" # or what was moved there could be moved away
    done
    set -f
    expected='( -path *[Ee]xpect* -o -path *[Gg]old* -o -path *[Aa]nswer* -o -path *[Ss]olution* -o -path *[Rr]efer* -o -path *[Tt]ruth*
        -o -path *[Cc]orrect* -o -path *[Hh]idden* -o -path *[Ss]ecret* -o -path *[Oo]racle*
        -o -name test*.py -o -name *_test.py -o -name *_tests.py )'
    # Data that are put there by their names are for what is judged, unless the names speak of what is expected.
    for word; do
        case $word in -?* | /tests | /tests/ | /tests/. | "$last") continue ;; esac
        case $(readlink -f -- "$word") in
            /tests | *.sh | */tests.json | */test.patch | */suite | *[Ee]xpect* | *[Gg]old* | *[Aa]nswer* | *[Ss]olution* | *[Rr]efer* | *[Tt]ruth* | *[Cc]orrect* | \
                *[Hh]idden* | *[Ss]ecret* | *[Oo]racle*) continue ;;
            */test*.py | *_test.py | *_tests.py) continue ;;
            /tests/*) ;;
            *) continue ;;
        esac
        home=${word%/}
        made=$target
        [ ! -d "$target" ] || [ ! -e "$target/${home##*/}" ] || made=$target/${home##*/}
        [ -e "$made" ] || continue
        # A folder that is closed to judged code may hold both.
        # shellcheck disable=SC2086 # they are words
        [ ! -d "$word" ] || [ "$(find "$word" -maxdepth 0 -perm -001)" ] || (cd "${made%/*}" && find "./${made##*/}" -user root $expected -exec chmod o= {} +)
        # shellcheck disable=SC2086 # they are words
        (cd "${made%/*}" && find "./${made##*/}" -user root ! $expected ! -perm -004 -exec chmod o+rX {} +)
    done
    exit 0
fi
[ "$sources" ] || echo "hidden tests could not be put to $place" >> /logs/verifier/hindered
exit $status
