#!/bin/sh
# `judged PROGRAM ...` where the image has no Python: the program runs as nobody, by what Linux images have for it.
export HOME=/tmp PATH="${PATH#/verifier/bin:}"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
[ -z "$JUDGED_LIBRARIES" ] || export LD_LIBRARY_PATH="$JUDGED_LIBRARIES"
read -r user < /verifier/uid
[ "$1" != /verifier/call ] || shift
unset JUDGED_LIBRARIES BASH_ENV
# shellcheck disable=SC2016 # what `su` is given is for the other shell
if setpriv --reuid="$user" --regid="$user" --clear-groups true 2> /dev/null; then
    exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs -- "$@"
elif su -s /bin/sh -c true -- nobody 2> /dev/null; then
    exec su -s /bin/sh -c 'exec "$0" "$@"' -- nobody "$@"
fi
echo "judged: this image has no Python, setpriv or su, so nothing can be run as nobody; add util-linux to it" >&2
exit 126
