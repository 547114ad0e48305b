#!/bin/bash
# Runs the tests and reads what they print. That is no proof: what is judged can print it too.
cd @WORKDIR@ || exit 1
@PREPARE@
# Nobody runs what is judged, but for its files and its home it is like the root that the image was made for.
find . -path ./.git -prune -o ! -type l '(' ! -perm -006 -o -type d ! -perm -007 ')' -exec chmod a+rwX {} +
chmod -R go= /tests
home=(HOME="$HOME" JAVA_TOOL_OPTIONS="${JAVA_TOOL_OPTIONS:+$JAVA_TOOL_OPTIONS }-Duser.home=$HOME" CARGO_NET_OFFLINE=true
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' LANG=C.UTF-8)
if type judged > /dev/null 2>&1; then
    stop() { judged sh -c 'kill -9 -1'; }
else # not under atropos-agent's verifier
    judged() { "$@"; }
    stop() { :; }
fi
kept=$(mktemp -d) && mkfifo "$kept/pipe" && mkdir -p /logs/verifier || exit 1
{ head -c @LIMIT@ > "$kept/output"; cat > /dev/null; } < "$kept/pipe" &
judged env "${home[@]}" bash -c "$(cat /tests/commands.sh)" < /dev/null > "$kept/pipe"
status=$?
# What is judged may have put programs into the image's own PATH by now.
PATH=${PATH%%:*}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
stop
wait
tail -c 2000 "$kept/output"
echo
@PARSE@ < "$kept/output" > "$kept/results" || status=1
LC_ALL=C awk -v ended=$status -v repeats=@REPEATS@ -f /tests/verdict.awk /tests/listed "$kept/results" \
    > /logs/verifier/ctrf.json && reward=1 || reward=0
echo "$reward" > /logs/verifier/reward.txt
