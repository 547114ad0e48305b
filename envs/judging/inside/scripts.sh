#!/bin/sh
# Sourced by wrapper.sh: awk and sed, which write files and start programs as their script says. They are root's where
# the script is one of /tests or stands in one.
# shellcheck disable=SC1091,SC2154 # it is there when this runs, and the names are wrapper.sh's
. /verifier/ours.sh
takes=
seen=
all_ours() {
    for word; do
        case $takes in
            file) case $(readlink -f -- "$word") in /tests/*) original "$word" || return 1 ;; *) return 1 ;; esac; takes=; seen=1; continue ;;
            text) ours part "$word" || return 1; takes=; seen=1; continue ;;
            other) takes=; continue ;;
        esac
        case $name$word in
            *awk-f | *awk--file | sed-f | sed--file) takes='file' ;;
            sed-e | sed--expression | gawk-e | gawk--source) takes='text' ;;
            *awk-v | *awk-F | *awk--assign | *awk--field-separator | sed-l) takes='other' ;;
            *awk-f* | *awk--file=* | sed-f* | sed--file=* | sed-*f | gawk-i* | gawk--include* | gawk-l* | gawk--load* | gawk-E* | gawk--exec*) return 1 ;;
            sed-*e) takes='text' ;;
            sed-e* | sed--expression=* | gawk-e* | gawk--source=*) ours part "${word#*e}" || ours part "${word#*=}" || return 1; seen=1 ;;
            *awk-?* | sed-?*) ;;
            *) [ "$seen" ] || ours part "$word" || return 1; return 0 ;;
        esac
    done
}
# The name of a file of the agent's may read like a setting (`NR=5`), where awk is called with `*`.
case $name in
    *awk)
        for word; do
            shift
            case ${word%%=*} in "$word" | *[!A-Za-z0-9_]*) ;; *) [ ! -e "$word" ] || word=./$word ;; esac
            set -- "$@" "$word"
        done ;;
esac
all_ours "$@" && as_root "$@"
as_judged "$@"
