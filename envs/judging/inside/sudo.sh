#!/bin/sh
# `sudo` of what is root already, or else of the same user: no program gains rights in the verifier's sandbox.
user=
while :; do
    case $1 in
        -u | --user) user=$2; shift 2 ;;
        -u?*) user=${1#-u}; shift ;;
        --user=*) user=${1#*=}; shift ;;
        -g | -p | -C | -T | -h | -D) shift 2 ;;
        --) shift; break ;;
        -*) shift ;;
        *) break ;;
    esac
done
case $user in
    "" | root | 0) exec env "$@" ;;
    *) exec runuser -u "$user" -- env "$@" ;;
esac
