#!/bin/sh
# Sourced by the scripts beside it.
# original FILE: whether a file of /tests is as the task has it.
original() {
    # shellcheck disable=SC3067 # the shells that images have know -O
    if [ -O "$1" ] && [ ! "$1" -nt /verifier/stamp ] && [ ! "$1" -ot /verifier/stamp ]; then return 0; fi
    [ -z "$(find -L "$1" -maxdepth 0 -cnewer /verifier/since)" ]
}
# ours KIND CODE: whether the task itself has written the code that root is asked to run. KIND: `argument` of -c in a
# script of /tests, `stdin` that is a here-document there, or `part` of such a script; `script`, the path of one that was
# written from there.
ours() {
    quote="'"
    for file in /tests/*; do
        if [ ! -f "$file" ] || ! original "$file"; then continue; fi
        text=$(cat "$file")
        case $1 in
            argument)
                case $text in *"c $quote$2$quote"* | *"c \"$2\""*) return 0 ;; esac
                # One word, such as the name of a function, may stand there without quotes.
                case $2 in *[!A-Za-z0-9_-]*) ;; *) case $text in *"c $2"[!A-Za-z0-9_./-]*) return 0 ;; esac ;; esac ;;
            part) case $text in *"$2"*) return 0 ;; esac ;;
        esac
    done
    [ "$1" != part ] && [ "$default" ] || return 1
    printf %s "$2" | PYTHONPATH='' "$default" -s -B /verifier/ours.py "$1"
}
