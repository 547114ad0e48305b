#!/bin/sh
# Sourced by the scripts beside it. Calls a function, $1, with each folder of PATH; "" stands for the current one.
each_folder() {
    rest=$PATH:
    while [ "$rest" ]; do
        "$1" "${rest%%:*}"
        rest=${rest#*:}
    done
}
