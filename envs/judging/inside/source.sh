#!/bin/bash
# What bash itself would run as root: a file that `.` or `source` names, and what `eval` is given. Neither may be judged
# code. Of a Python's `activate` in the working directory it does what matters to test.sh.
# Its own names are none that what is sourced may use.
source() {
    local _file=$1 _named=$1 _real _place
    shift
    case $_file in
        /dev/stdin | /dev/fd/* | /proc/self/fd/*)
            _real=$(_image cat -- "$_file")
            if [[ ! $_real ]] || _have_written stdin "$_real"; then builtin eval "$_real"; else _judged "$_named"; fi
            return ;;
    esac
    read -r _place < /verifier/place
    case $_file in */*) ;; *) _file=$(_in_path "$_file") ;; esac
    _real=$(_image readlink -m -- "$_file" 2> /dev/null || _image readlink -f -- "$_file")
    case $_real in
        "$_place"/*/activate) _activate "$_real" ;;
        "$_place"/*) _judged "$_named" ;;
        *)
            if [ ! -e "$_file" ]; then
                case $_real in */.local/bin/env | */.cargo/env) return 0 ;; esac # what uv's installer would have left
                builtin source "$_file" "$@"
            elif _is_ours "$_file"; then
                if _image grep -qE '^(declare|typeset)[[:space:]]' "$_file" && ! _image grep -qF BASH_SOURCE "$_file"; then
                    builtin eval "$(_image sed -E 's/^(declare|typeset)[[:space:]]/&-g /' "$_file")" # it would be this function's own
                else
                    builtin source "$_file" "$@"
                fi
            else
                case $_real in */bin/activate) _activate "$_real" ;; *) _judged "$_named" ;; esac
            fi ;;
    esac
}
# Runs a program of the image's, whatever PATH is.
_image() { PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH command "$@"; }
# Takes of an environment what matters to test.sh.
_activate() {
    export VIRTUAL_ENV="${1%/bin/activate}" PATH="$PATH:${1%/activate}"
    # shellcheck disable=SC2317,SC2329 # test.sh may call it
    deactivate() { unset VIRTUAL_ENV; }
}
# The file that bash would find by a name without a folder.
_in_path() {
    local folder folders
    IFS=: read -ra folders <<< "$PATH"
    for folder in "${folders[@]}"; do
        if [ -f "${folder:-.}/$1" ]; then
            echo "${folder:-.}/$1"
            return
        fi
    done
    echo "./$1"
}
# Whether a file is older than the sandbox. False where nothing tells.
_is_old() {
    local newer
    newer=$(_image find -L "$1" -maxdepth 0 -cnewer /verifier/since) && [ -z "$newer" ]
}
# Whether a file is the image's, or the task itself has written what is in it.
_is_ours() {
    [ -f "$1" ] || return 1
    ! _is_old "$1" || return 0
    case $(_image readlink -f -- "$1") in /tests/*) if [ -O "$1" ] && [ ! "$1" -nt /verifier/stamp ] && [ ! "$1" -ot /verifier/stamp ]; then return 0; fi ;; esac
    _have_written stdin "$(_image cat -- "$1")"
}
# Whether code is written in a file of /tests. $1: as `ours.py` takes it.
_have_written() {
    local python own
    [ -e /verifier/python ] || return 1
    read -r python < /verifier/python
    read -r own < /verifier/own
    printf %s "$2" | VERIFIER_OWN_CALL=$own PYTHONPATH='' _image "$python" -s -B /verifier/ours.py "$1"
}
# shellcheck disable=SC1090 # whatever test.sh names
.() { source "$@"; }
# Of a file of variables (`export $(cat .env)`) bash itself takes none of those that it obeys. The shells that bash starts
# know its functions by a file: wrapper.sh, which comes between, drops them, as it does those of an environment that
# test.sh takes of the agent's.
export() {
    local _said
    if [[ ${1-} == -f ]]; then
        for _said in "${@:2}"; do declare -f -- "$_said"; done >> /verifier/exported.sh
    fi
    for _said; do
        case $_said in
            PS4=* | POSIXLY_CORRECT=* | FUNCNEST=* | BASH_ENV=* | ENV=* | BASH_COMPAT=* | VERIFIER_* | JUDGED_* | \
                IFS=* | CDPATH=* | GLOBIGNORE=* | EXECIGNORE=* | TMOUT=*)
                grep -qs -- "export.*${_said%%=*}=" "${BASH_SOURCE[1]-}" || return 0 ;;
        esac
    done
    # shellcheck disable=SC2163 # it is what is to be exported
    builtin export "$@"
}
_judged() {
    echo "$1: test.sh runs this as root, so it can't be judged code; see docs/reward.md" >&2
    return 1
}
_may_eval() {
    local line program called='eval[[:space:]]+"?([$][(]|`)[[:space:]]*([A-Za-z0-9_./-]+)' plain='^[A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9_]*$'
    mapfile -s $((BASH_LINENO[1] - 1)) -n 1 line < "${BASH_SOURCE[2]}" 2> /dev/null
    # What stands there word for word, as in `trap finish EXIT`; what a substitution would say a second time does not.
    if [[ $* != *['$`']* && ${line[0]} =~ [[:space:]]"$*"([[:space:]\;\&\|\)]|$) ]]; then return 0; fi
    # shellcheck disable=SC2016 # that is what is looked for
    case ${line[0]} in
        *eval*'$('* | *eval*'`'*)
            [[ ${line[0]} =~ $called ]] || return 1
            case ${BASH_REMATCH[2]##*/} in
                conda | mamba | micromamba | opam | ssh-agent | dircolors | brew | pyenv | rbenv | nodenv | goenv | fnm | getopt)
                    program=$(type -P -- "${BASH_REMATCH[2]}") || return 0
                    read -r place < /verifier/place
                    case $(_image readlink -f -- "$program") in "" | "$place"/*) return 1 ;; esac
                    _is_old "$program" ;;
                *) return 1 ;;
            esac ;;
        *) [[ $* =~ $plain ]] || _have_written evaluated "$*" ;;
    esac
}
eval() {
    if _may_eval "$@"; then builtin eval "$*"; else _judged eval; fi
}
# shellcheck disable=SC2064 # as it was given
trap() {
    case $1 in
        -?*) builtin trap "$@" ;;
        *) if _may_eval "$1"; then builtin trap "$@"; else _judged trap; fi ;;
    esac
}
# What judged code wrote may come as several words, where test.sh does not quote it: `! 1` makes `[ $x = 42 ]` true. So
# what joins or turns comparisons must be written so, in a test of the same statement.
_is_as_written() {
    local IFS=$' \t\n'
    [[ $# -ge 4 && " $* " == *' '@(!|-a|-o|\(|\))' '* ]] || return 0
    local lines at=$((BASH_LINENO[1] - 1)) text=${BASH_EXECUTION_STRING-} operators
    operators=$(_operators "$@")
    if [[ -f ${BASH_SOURCE[2]-} ]]; then
        mapfile -t lines < "${BASH_SOURCE[2]}"
        while [[ $at -gt 0 && ${lines[at - 1]-} == *\\ ]]; do at=$((at - 1)); done
        text=${lines[at]-}
        while [[ ${lines[at]-} == *\\ ]]; do text="$text ${lines[++at]-}"; done
    fi
    while [[ $text =~ \$\([^\(\)]*\) || $text =~ \`[^\`]*\` ]]; do text=${text/"${BASH_REMATCH[0]}"/x}; done
    text=" ${text//[\"\'\\]/}"
    while [[ $text =~ [^[:alnum:]_\[](\[[[:space:]]+([^]]*)\]|test[[:space:]]+([^\;\&\|]*))(.*)$ ]]; do
        text=" ${BASH_REMATCH[4]}"
        read -ra lines <<< "${BASH_REMATCH[2]}${BASH_REMATCH[3]}"
        [[ $(_operators ${lines[@]+"${lines[@]}"}) != "$operators" ]] || return 0
    done
    echo "$0: more words are compared than are written; quote what is compared" >&2
    return 1
}
_operators() {
    local word
    for word; do [[ $word != @(!|-a|-o|\(|\)) ]] || printf '%s ' "$word"; done
}
# shellcheck disable=SC2016 # it is for when that is called
builtin eval '[() { if _is_as_written "${@:1:$#-1}"; then builtin [ "$@"; else return 2; fi; }'
test() {
    if _is_as_written "$@"; then builtin test "$@"; else return 2; fi
}
builtin source /verifier/exported.sh
