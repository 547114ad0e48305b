#!/bin/sh
# Sourced by the scripts beside it.
# ours KIND CODE: whether the task itself has written the code that root is asked to run. KIND: `argument` of -c in a
# script of /tests, `stdin` that is a here-document there, or `part` of such a script; `script`, the path of one that was
# written from there.
ours() {
    quote="'"
    for file in /tests/*; do
        [ -f "$file" ] || continue
        text=$(cat "$file")
        case $1 in
            argument) case $text in *"c $quote$2$quote"* | *"c \"$2\""*) return 0 ;; esac ;;
            part) case $text in *"$2"*) return 0 ;; esac ;;
        esac
    done
    [ "$1" != part ] && [ "$default" ] || return 1
    printf %s "$2" | PYTHONPATH='' "$default" -s -B /verifier/ours.py "$1"
}
